"""The report of one or more runs: one self-contained HTML page, its figures as SVG and PNG, and Markdown.

Reads only the results' directories and the study's figures; nothing is measured and no lab is needed.
"""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined, select_autoescape
from matplotlib.figure import Figure

from lab.model.files import Campaign, Configured, Machines, Result
from lab.model.metric import METRICS
from lab.model.trial import Trial
from lab.report import figures, sentences
from lab.report.captures import section
from lab.report.captures.heard import Grid, Heard
from lab.results import compare, completeness, load, store
from lab.results.measures import Answer, answer, interval, number

HERE = Path(__file__).parent
STUDY = HERE.parent / "study_2019.json"


@dataclass(frozen=True)
class Picture:
    """A figure: what it shows in words, its file's stem, and the SVG as a data URI."""

    caption: str
    stem: str
    uri: str


@dataclass(frozen=True)
class Section:
    """One run, ready to be read."""

    name: str
    run: Path
    document: Campaign
    sentence: str
    answers: dict[str, Answer]
    pictures: list[Picture]
    grids: list[Grid]
    verdicts: list[Result]
    identity: dict[str, Any]
    machines: dict[str, Any]
    notes: list[str]
    share_pct: float
    overhead_s: float

    @property
    def invalid(self) -> list[Result]:
        """Trials that left the statistics."""
        return [verdict for verdict in self.verdicts if verdict.status != "ok"]


def write(runs: list[Path], output: Path) -> Path:
    """Write ``output``/report.html, report.md and the figures; returns the page's path."""
    output.mkdir(parents=True, exist_ok=True)
    study = json.loads(STUDY.read_text())
    sections = [_section(run, study, output) for run in runs]
    answers = {section.name: section.answers for section in sections}
    verdicts = [sentences.verdict(finding, answers) for finding in study["findings"]]
    page = {
        "sections": sections,
        "verdicts": verdicts,
        "study": study,
        "metrics": METRICS,
        "contrasts": sentences.contrasts,
    }
    for name in ("report.html", "report.md"):
        (output / name).write_text(_templates().get_template(f"{name}.j2").render(page))
    return output / "report.html"


def _section(run: Path, study: dict[str, Any], output: Path) -> Section:
    document, frame = store.read_run(run), load(run)
    metrics = sorted(document.experiment["metrics"], key=list(METRICS).index)  # time comes first
    found = {metric: a for metric in metrics if (a := answer(frame, metric, frame.attrs["factors"]))}
    pictures = [
        _answer_picture(one, frame, study, document, output) for one in found.values() if len(one.cells) > 1
    ]
    each = (section.hear(trial, study["figures"]) for trial in store.finished(run))
    heard = next(filter(None, each), Heard())
    for stem, (caption, figure) in heard.drawn.items():
        pictures.append(_picture(caption, f"{document.name}-{stem}", figure, output))
    attempts = store.attempts(run)
    wall_s, measuring_s = (sum(getattr(a, key) for a in attempts) for key in ("wall_s", "measuring_s"))
    first = next(iter(found.values()), None)
    counted = first is not None and first.metric == "frames"  # how many frames there are answers nothing
    told = [] if counted and heard.sentences else [sentences.sentence(first)]
    return Section(
        name=document.name,
        run=run,
        document=document,
        sentence=" ".join(told + heard.sentences),
        answers=found,
        pictures=pictures,
        grids=heard.grids,
        verdicts=[store.need(Result, directory) for directory in store.finished(run)],
        identity=compare.identity(run),
        machines=_machines(run),
        notes=_notes(run),
        share_pct=100 * measuring_s / wall_s if wall_s else 0,
        overhead_s=(wall_s - measuring_s) / max(1, len(attempts)),
    )


def _answer_picture(one: Answer, frame: Any, study: Any, document: Campaign, output: Path) -> Picture:
    theirs = study["figures"].get(document.experiment["metrics"][one.metric])
    caption = sentences.sentence(one)
    if theirs:
        caption += f" Grey: the study's “{theirs['title']}”, {theirs['statistic']}."
    return _picture(caption, f"{document.name}-{one.metric}", figures.draw(one, frame, theirs), output)


def _picture(caption: str, stem: str, figure: Figure, output: Path) -> Picture:
    svg = figures.save(figure, output / stem)
    return Picture(caption, stem, "data:image/svg+xml;base64," + base64.b64encode(svg.encode()).decode())


def _notes(run: Path) -> list[str]:
    """What the reader must know: of captures that lost frames, and of how links were impaired."""
    asked = {trial: store.need(Trial, trial) for trial in store.finished(run)}
    configured = {trial: store.read(Configured, trial) or Configured() for trial in asked}
    notes = [
        f"{trial.name}: {lost}." for trial in asked if (lost := completeness.line(completeness.read(trial)))
    ]
    methods = {c.rate_method for c in configured.values() if c.rate_method}
    if any(nic.rate_mbit for trial in asked.values() for nic in trial.nics.values()) and methods:
        notes.append(f"What a capped guest sends was limited by: {', '.join(sorted(methods))}.")
    lossy = [
        (c, host) for t, c in configured.items() for host, link in asked[t].links.items() if link.loss_pct
    ]
    if any(host in c.hosts and c.hosts[host].offloads.get("tso") for c, host in lossy):
        notes.append("Loss acted on super-packets: segmentation offload was on, one drop took up to 64 kB.")
    return notes


def _machines(run: Path) -> dict[str, Any]:
    """hosts.json of the first trial that has one."""
    documents = (store.read(Machines, directory) for directory in store.finished(run))
    return next((document.model_dump(exclude_none=True) for document in documents if document), {})


def _templates() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(HERE),
        autoescape=select_autoescape(["html.j2"]),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"number": number, "interval": interval, "facts": sentences.facts}
    return environment
