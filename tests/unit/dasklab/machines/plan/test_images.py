"""Where image files are, and plans whose files do not exist."""

from __future__ import annotations

from pathlib import Path

import pytest
from dasklab.errors import LabError
from dasklab.machines.endpoint.change import Change, Step
from dasklab.machines.plan import images


@pytest.mark.parametrize(
    ("inventory", "expected"),
    [("mylab/inventory/hosts.yml", "mylab/a.tar.zst"), ("mylab/hosts.yml", "mylab/a.tar.zst")],
)
def test_relative_file_is_meant_from_the_labs_folder(inventory: str, expected: str, tmp_path: Path) -> None:
    image = images.resolved({"file": "a.tar.zst", "name": "b.tar"}, str(tmp_path / inventory))
    assert image == {"file": str(tmp_path / expected), "name": "b.tar"}


@pytest.mark.parametrize("image", [None, {"url": "https://x/y.qcow2"}, {"file": "/cache/a.qcow2"}])
def test_other_images_stay_as_they_are(image: dict[str, str] | None, tmp_path: Path) -> None:
    assert images.resolved(image, str(tmp_path / "hosts.yml")) == image


def test_plan_with_a_missing_file_is_refused_with_the_command_that_makes_it(tmp_path: Path) -> None:
    file = tmp_path / "dasklab.tar.zst"
    upload = Change("UPLOAD", "/upload", "the image", {"content": "vztmpl"}, str(file))
    steps = [Step("image", ((upload,),))]
    with pytest.raises(LabError, match=f"image file of the containers does not exist: {file}") as caught:
        images.refuse_missing_files(steps)
    assert f"dasklab minipve image --container --output {file}" in (caught.value.hint or "")
    file.touch()
    images.refuse_missing_files(steps)
