"""Pools and their members; permissions on tasks, task logs and lists."""

from __future__ import annotations

from tests.contract.endpoint import Endpoint, refused


def test_pool_members_can_be_moved(ours: Endpoint, vmid: int) -> None:
    root = ours.root()
    root.pools.post(poolid="second", comment="for a test")
    ours.create(vmid)
    members = root.pools.get(poolid=ours.pool)[0]["members"]
    assert vmid in [row["vmid"] for row in members]
    error = refused(root.pools.put, poolid="second", vms=str(vmid))
    text = f"VM {vmid} belongs already to pool '{ours.pool}' and 'allow-move' is not set"
    assert error.content == f"update pools failed: {text}"
    root.pools.put(poolid="second", vms=str(vmid), **{"allow-move": 1})
    assert refused(ours.vm(vmid).config.get).status_code == 403
    error = refused(root.pools.delete, poolid="second")
    assert error.content == f"delete pool failed: pool 'second' is not empty (contains VM {vmid})"
    root.pools.put(poolid=ours.pool, vms=str(vmid), **{"allow-move": 1})
    root.pools.delete(poolid="second")
    assert refused(root.pools.get, poolid="second").content == "pool 'second' does not exist"
    assert refused(root.pools.post, poolid=ours.pool).status_code == 500


MEMBER = {
    "id", "type", "node", "vmid", "name", "status", "template", "uptime", "cpu", "maxcpu", "mem", "maxmem",
    "memhost", "disk", "maxdisk", "diskread", "diskwrite", "netin", "netout",
}  # fmt: skip


def test_pool_members_are_visible_without_a_privilege(endpoint: Endpoint, vmid: int) -> None:
    """The lab's token reads its pool without Pool.Audit."""
    endpoint.create(vmid, name="member")
    members = endpoint.api().pools.get(poolid=endpoint.pool)[0]["members"]
    mine = next(row for row in members if row.get("vmid") == vmid)
    assert set(mine) >= {"id", "type", "node", "vmid"}
    if endpoint.state is not None:  # a real node tells the rest when it has first sampled the VM
        assert set(mine) == MEMBER
        assert (mine["name"], mine["maxcpu"]) == ("member", 1)


def test_destroyed_vm_leaves_its_pool(ours: Endpoint, vmid: int) -> None:
    ours.create(vmid)
    ours.done(ours.vm(vmid).delete())
    assert ours.root().pools.get(poolid=ours.pool)[0]["members"] == []


def test_task_logs_are_paged(endpoint: Endpoint, vmid: int) -> None:
    endpoint.create(vmid)
    upid = endpoint.vm(vmid).config.post(onboot=1)
    endpoint.wait(upid)
    path = f"/nodes/{endpoint.node}/tasks/{upid}/log"
    whole = endpoint.request("GET", path, params={"limit": 0}).json()
    assert whole["total"] == len(whole["data"])
    assert whole["data"][-1] == {"n": whole["total"], "t": "TASK OK"}
    page = endpoint.request("GET", path, params={"start": 1, "limit": 1}).json()["data"]
    assert page == whole["data"][1:2]


def test_unknown_and_malformed_upids(endpoint: Endpoint) -> None:
    tasks = endpoint.api().nodes(endpoint.node).tasks
    unknown = f"UPID:{endpoint.node}:0000009A:000549BF:6B00FC86:qmcreate:100:root@pam:"
    token = f"{endpoint.user}!{endpoint.token_id}"
    mine = unknown.replace("root@pam", token)
    assert refused(tasks(mine).status.get).errors == {"upid": "no such task"}
    assert refused(tasks("UPID:nonsense").status.get).errors == {"upid": "unable to parse worker upid"}


def test_foreign_tasks_need_sys_audit(ours: Endpoint, vmid: int) -> None:
    ours.create(vmid)
    upid = ours.vm(vmid).config.post(onboot=1)
    ours.wait(upid)
    root = ours.root()
    root.access.users.post(userid="watcher@pve", password="watcher-secret")
    secret = root.access.users("watcher@pve").token("see").post(privsep=0)["value"]
    headers = {"Authorization": f"PVEAPIToken=watcher@pve!see={secret}"}
    path = f"/nodes/{ours.node}/tasks"
    assert ours.request("GET", path, headers).json()["data"] == []
    answer = ours.request("GET", f"{path}/{upid}/status", headers)
    assert answer.reason == f"Permission check failed (/nodes/{ours.node}, Sys.Audit)"
    root.access.acl.put(path=f"/nodes/{ours.node}", users="watcher@pve", roles="PVEAuditor")
    assert upid in [row["upid"] for row in ours.request("GET", path, headers).json()["data"]]
    root.access.users("watcher@pve").delete()


def test_task_list_filters(endpoint: Endpoint, vmid: int) -> None:
    endpoint.create(vmid)
    endpoint.failed(endpoint.vm(vmid).resize.put(disk="scsi9", size="1G"))
    tasks = endpoint.api().nodes(endpoint.node).tasks
    mine = tasks.get(vmid=vmid)
    assert [row["type"] for row in mine][:2] == ["resize", "qmcreate"]
    assert mine[0]["status"] == "disk 'scsi9' does not exist"
    wrong = tasks.get(vmid=vmid, errors=1)
    assert wrong[0]["type"] == "resize"
    assert "OK" not in {row["status"] for row in wrong}
    assert [row["type"] for row in tasks.get(vmid=vmid, typefilter="qmcreate", limit=1)] == ["qmcreate"]
    path = f"/nodes/{endpoint.node}/tasks"
    assert endpoint.request("GET", path, params={"vmid": vmid, "source": "active"}).json() == {"data": []}
    assert endpoint.request("GET", path, params={"vmid": vmid, "limit": 1}).json()["total"] >= 2
