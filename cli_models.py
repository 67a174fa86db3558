"""`hobnob models`: what there is on this machine, fetched from the hub, and deleted."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hobnob.cli_arguments import Json, Url, group, on_terminal, target_of, usage
from hobnob.exits import Exit, ExitError

if TYPE_CHECKING:
    from hobnob import hub_download, hub_files
    from hobnob.tui.plain import Notes

models = group("The models on this machine.")

SHOWN_EVERY_SECONDS = 0.2


@models.command("list")
def models_list(as_json: Json = False, url: Url = None) -> int:
    """The models that were found, the one in use marked."""
    from hobnob.tui import verbs

    return verbs.models(target_of(url), as_json=as_json)


@models.command("pull")
def models_pull(
    name: Annotated[
        str,
        typer.Argument(
            metavar="REPO[:FILE|:QUANT]",
            show_default=False,
            help="OWNER/NAME on the hub; after a colon a file, or a quantisation like Q4_K_M.",
        ),
    ],
    revision: Annotated[
        str | None, typer.Option("--revision", metavar="REV", help="A branch, tag or commit.")
    ] = None,
    quiet: Annotated[bool, typer.Option("-q", "--quiet", help="No notices on stderr.")] = False,
    as_json: Json = False,
) -> int:
    """Download a model from the hub (huggingface.co, or HF_ENDPOINT) and print its name.

    The same command goes on with a download that was cut. Of several quantisations it takes
    Q4_K_M.
    """
    from dataclasses import replace

    from hobnob import hub_files
    from hobnob.tui.plain import Notes

    try:
        wanted = hub_files.parse(name)
        if revision is not None and not hub_files.is_inside(revision):
            raise hub_files.BadName(f"There can be no revision {revision!r}.")
    except hub_files.BadName as error:
        raise usage(str(error)) from None
    wanted = replace(wanted, revision=revision or wanted.revision)
    with Notes(quiet=quiet) as notes:
        try:
            paths = _pulled(wanted, notes)
        except KeyboardInterrupt:
            sentence = "Stopped. What has come is kept: the same command goes on from there."
            raise ExitError(sentence, Exit.INTERRUPTED, "interrupted") from None
        return _say_pulled(paths, as_json=as_json)


def _pulled(wanted: hub_files.Wanted, notes: Notes) -> list[Path]:
    from hobnob import hub, hub_download

    account = hub.Account.of(os.environ)
    cache = hub_download.Cache.of(_hub_cache(), wanted.repo)
    revision = wanted.revision or hub.USUAL_REVISION
    if account.offline:
        chosen = _chosen(cache.known(revision), wanted.part, notes, offline=True)
        return [cache.path_of(revision, file) for file in chosen.files]
    with account.client() as client:
        repository = hub.look(client, account, wanted)
        chosen = _chosen(repository.sizes, wanted.part, notes)
        size = hub_download.gigabytes(chosen.size)
        files = f" in {len(chosen.files)} files" if len(chosen.files) > 1 else ""
        notes.say(f"{wanted.repo}, {chosen.name}: {size}{files}, from {account.name}")
        show = _Meter(notes)
        paths = hub_download.fetch(client, account, repository, chosen.files, cache, show)
        cache.name(revision, repository.commit)
    return paths


def _hub_cache() -> Path:
    from hobnob.server import models as found

    places = found.places(os.environ)
    return next(place.folder for place in places if place.source == "huggingface")


def _chosen(
    sizes: dict[str, int], part: str, notes: Notes, *, offline: bool = False
) -> hub_files.Choice:
    from hobnob import hub_download, hub_files

    try:
        return hub_files.choose(sizes, part)
    except hub_files.NoChoice as error:
        if offline:
            sentence = "It is not on this machine, and HF_HUB_OFFLINE forbids to ask for it."
            raise ExitError(sentence, Exit.UNREACHABLE, "unreachable") from None
        width = max((len(one.name) for one in error.choices), default=0)
        for one in error.choices:
            notes.text(f"{one.name:<{width}}  {hub_download.gigabytes(one.size):>9}")
        if error.choices:
            raise usage(str(error)) from None
        raise ExitError(str(error), Exit.MODEL, "model_not_found") from None


class _Meter:
    """How far it is, on a terminal."""

    def __init__(self, notes: Notes) -> None:
        self._notes = notes
        self._shown = float("-inf")
        self._began: tuple[float, int] | None = None

    def __call__(self, progress: hub_download.Progress) -> None:
        from hobnob.hub_download import gigabytes

        now, done = time.monotonic(), progress.done
        if self._began is None:
            self._began = now, done
        if now - self._shown < SHOWN_EVERY_SECONDS:
            return
        self._shown = now
        share = f"{gigabytes(done)} of {gigabytes(progress.total)}"
        if progress.checking:
            self._notes.progress(f"checking what has come: {share}")
            return
        seconds = now - self._began[0]
        speed = (done - self._began[1]) / seconds if seconds > 1 else 0.0
        facts = [f"{done / max(progress.total, 1):.0%}"]
        if speed > 0:
            left = _span((progress.total - done) / speed)
            facts += [f"{speed / 1e6:.1f} MB/s", f"{left} left"]
        self._notes.progress(f"{share} ({', '.join(facts)})")


def _span(seconds: float) -> str:
    minutes = int(seconds) // 60
    return (
        f"{minutes // 60} h {minutes % 60} min"
        if minutes > 59
        else (f"{minutes} min" if minutes else f"{int(seconds)} s")
    )


def _say_pulled(paths: Sequence[Path], *, as_json: bool) -> int:
    """Its name here, as `hobnob models list` and `-m` have it."""
    from hobnob.server import models as found
    from hobnob.tui.plain import Output, print_json

    listed = found.find(found.places(os.environ))
    reals = {os.path.realpath(path) for path in paths}
    model = next((one for one in listed if os.path.realpath(one.path) in reals), None)
    id = model.id if model is not None else str(paths[0])
    if as_json:
        size = sum(path.stat().st_size for path in paths)
        print_json({"id": id, "path": str(paths[0]), "files": len(paths), "size": size})
    else:
        output = Output.stdout()
        output.write_now(id)
        output.end_now()
    if model is not None and model.problem is not None:
        raise ExitError(f"It cannot be loaded: {model.problem}", Exit.MODEL, "model_unavailable")
    return Exit.OK


@models.command("rm")
def models_rm(
    model: Annotated[
        str,
        typer.Argument(metavar="NAME", show_default=False, help="As `hobnob models list` has it."),
    ],
    yes: Annotated[bool, typer.Option("-y", "--yes", help="Don't ask.")] = False,
) -> int:
    """Delete a model: one from the hub's cache, or from a folder of your own."""
    if not yes and not on_terminal(2):
        raise usage("Without a terminal to ask on, deleting needs -y.")
    from hobnob import hub_download, model_removal
    from hobnob.launch import Target
    from hobnob.paths import Paths
    from hobnob.tui import verbs
    from hobnob.tui.plain import Notes

    paths, notes = Paths.home(), Notes()
    places = model_removal.where_to_look(paths.config_file, os.environ)
    # These are this machine's files: whatever HOBNOB_URL names, its own server may have one open.
    in_use = verbs.model_in_use(Target(paths))
    removal = model_removal.plan(model, places, in_use)
    for file in removal.files:
        notes.text(f"{file}")
    frees = hub_download.gigabytes(removal.frees)
    if not yes and not verbs.agreed(f"Delete {removal.model.id} for good ({frees})?"):
        return Exit.OK
    model_removal.carry_out(removal)
    notes.say(f"{removal.model.id} is deleted: {frees} are free again.")
    return Exit.OK
