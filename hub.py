"""The model hub (huggingface.co, or what HF_ENDPOINT names): what a repository holds.

Asked only when the user says so. Its variables are those of its own tools: HF_ENDPOINT, HF_TOKEN,
HF_HOME, HF_HUB_OFFLINE. The token goes to the endpoint alone, never to where it sends us on to.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import httpx

from hobnob import __version__, hub_files
from hobnob.exits import Exit, ExitError

USUAL_ENDPOINT = "https://huggingface.co"
USUAL_REVISION = "main"
MAX_ANSWER_BYTES = 16 * 1024 * 1024
MAX_TOKEN_BYTES = 4096
CONNECT_SECONDS, READ_SECONDS = 10.0, 30.0

COMMIT = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_TRUE = {"1", "ON", "YES", "TRUE"}


class HubError(ExitError):
    """The hub cannot give what was asked for; the message says why."""


class Unreachable(HubError):
    """The connection failed or broke; to try again may help."""

    def __init__(self, sentence: str) -> None:
        super().__init__(sentence, Exit.UNREACHABLE, "unreachable")


@dataclass(frozen=True, slots=True)
class Account:
    """Where the hub is, and who asks."""

    endpoint: str
    token: str | None
    offline: bool

    @classmethod
    def of(cls, environ: Mapping[str, str]) -> Account:
        """Raises HubError."""
        endpoint = (environ.get("HF_ENDPOINT") or USUAL_ENDPOINT).rstrip("/")
        parts = urlsplit(endpoint)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise HubError("HF_ENDPOINT is no http(s) address.", Exit.CONFIG, "config")
        offline = environ.get("HF_HUB_OFFLINE") or environ.get("TRANSFORMERS_OFFLINE") or ""
        return cls(endpoint, _token(environ), offline.upper() in _TRUE)

    @property
    def name(self) -> str:
        return urlsplit(self.endpoint).netloc.rpartition("@")[2]

    def client(self) -> httpx.Client:
        """Follows where it is sent; httpx leaves the token out on the way to another host."""
        headers = {"User-Agent": f"hobnob/{__version__}"}
        if self.token is not None:
            headers["Authorization"] = f"Bearer {self.token}"
        timeout = httpx.Timeout(READ_SECONDS, connect=CONNECT_SECONDS)
        return httpx.Client(headers=headers, timeout=timeout, follow_redirects=True)


@dataclass(frozen=True, slots=True)
class RemoteFile:
    path: str
    size: int
    digest: str
    """Of its content: sha256, or what git calls it. The name that the cache keeps it under."""


@dataclass(frozen=True, slots=True)
class Repository:
    name: str
    commit: str
    files: dict[str, RemoteFile]

    @property
    def sizes(self) -> dict[str, int]:
        return {path: file.size for path, file in self.files.items()}

    def address(self, account: Account, path: str) -> str:
        return f"{account.endpoint}/{self.name}/resolve/{self.commit}/{quote(path)}"


def look(client: httpx.Client, account: Account, wanted: hub_files.Wanted) -> Repository:
    """What there is of a repository, at this moment. Raises HubError."""
    revision = quote(wanted.revision or USUAL_REVISION, safe="")
    url = f"{account.endpoint}/api/models/{wanted.repo}/revision/{revision}"
    with reaching(account):
        with client.stream("GET", url, params={"blobs": "true"}) as response:
            require(response, account, wanted.repo)
            data = bytearray()
            for piece in response.iter_bytes():
                data += piece
                if len(data) > MAX_ANSWER_BYTES:
                    raise _odd(account)
    try:
        answer = json.loads(data)
    except (ValueError, RecursionError):
        raise _odd(account) from None
    commit = answer.get("sha") if isinstance(answer, dict) else None
    if not isinstance(commit, str) or not COMMIT.fullmatch(commit):
        raise _odd(account)
    siblings = answer.get("siblings")
    found = [_file(one) for one in siblings] if isinstance(siblings, list) else []
    return Repository(wanted.repo, commit, {one.path: one for one in found if one is not None})


def _file(raw: Any) -> RemoteFile | None:
    """None for what cannot be fetched and checked."""
    if not isinstance(raw, dict):
        return None
    large = raw["lfs"] if isinstance(raw.get("lfs"), dict) else {}
    path, size = raw.get("rfilename"), large.get("size", raw.get("size"))
    digest = large.get("sha256") or raw.get("blobId")
    if not isinstance(path, str) or not hub_files.is_inside(path) or type(size) is not int:
        return None
    whole = isinstance(digest, str) and (_SHA256 if large else COMMIT).fullmatch(digest)
    return RemoteFile(path, size, str(digest)) if whole and size >= 0 else None


def require(response: httpx.Response, account: Account, repo: str) -> None:
    """Raises HubError unless the hub gives what was asked for."""
    status, why = response.status_code, response.headers.get("X-Error-Code", "")
    if response.is_success:
        return
    page = f"{account.endpoint}/{repo}"
    if why == "GatedRepo" or status == 403:
        sentence = f"{repo} is only for those whom its owners let in: ask for it at {page}"
        known = "." if account.token else ", and set HF_TOKEN."
        raise HubError(f"{sentence}{known}", Exit.KEY, "forbidden")
    if status == 401 and account.token and why != "RepoNotFound":
        raise HubError(f"{account.name} does not accept HF_TOKEN.", Exit.KEY, "unauthorized")
    if why == "RevisionNotFound":
        raise HubError(f"{repo} has no such revision.", Exit.MODEL, "model_not_found")
    if status in (401, 404):
        private = "" if account.token else " (or it is private, and needs HF_TOKEN)"
        sentence = f"There is no {repo} on {account.name}{private}."
        raise HubError(sentence, Exit.MODEL, "model_not_found")
    if status == 429 or status >= 500:
        sentence = f"{account.name} has no time for it (HTTP {status}): try again later."
        raise HubError(sentence, Exit.TRY_LATER, "server_overloaded")
    raise HubError(f"{account.name} answers HTTP {status}.", Exit.UNREACHABLE, "bad_answer")


@contextmanager
def reaching(account: Account) -> Iterator[None]:
    """What breaks on the way becomes a sentence. Raises Unreachable."""
    try:
        yield
    except httpx.TimeoutException:
        raise Unreachable(f"{account.name} does not answer.") from None
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        why = str(error) or type(error).__name__
        raise Unreachable(f"{account.name} cannot be reached: {why}.") from None


def _odd(account: Account) -> HubError:
    return HubError(f"The answer of {account.name} is odd.", Exit.UNREACHABLE, "bad_answer")


def _token(environ: Mapping[str, str]) -> str | None:
    """From the variable, else from where the hub's own tools keep it."""
    given = environ.get("HF_TOKEN") or environ.get("HUGGING_FACE_HUB_TOKEN") or ""
    if not given and environ.get("HF_HUB_DISABLE_IMPLICIT_TOKEN", "").upper() not in _TRUE:
        cache = environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
        home = environ.get("HF_HOME") or os.path.join(cache, "huggingface")
        path = Path(os.path.expanduser(environ.get("HF_TOKEN_PATH") or f"{home}/token"))
        try:
            with open(path, encoding="ascii", errors="replace") as file:
                given = file.read(MAX_TOKEN_BYTES)
        except OSError:
            return None
    token = given.strip()
    return token if token.isascii() and token.isprintable() and token else None
