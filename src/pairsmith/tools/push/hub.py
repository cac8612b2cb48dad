"""Upload files to the Hub in one commit, with readable error messages."""

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager

from pairsmith.core.errors import PairsmithError, RemoteError, SettingsError, first_line, redacted
from pairsmith.tools.push.parts import Parts
from pairsmith.tools.settings import PushSettings

_OWN_FILES = {
    "dataset": re.compile(r"(data|rejects)/.+\.parquet"),
    "model": re.compile(r"([^/]+/)?(model|pytorch_model)[\w.-]*\.(safetensors|bin)(\.index\.json)?"),
}
"""By kind of repository, the files of an earlier push, which are deleted unless they are sent again."""

_TOKEN = "log in with `hf auth login`, or set HF_TOKEN"


def endpoint() -> str:
    """The URL of the Hub: ``HF_ENDPOINT``, or the default."""
    return (os.environ.get("HF_ENDPOINT") or "https://huggingface.co").rstrip("/")


def check_repository(name: str) -> None:
    """Raise a ``SettingsError`` if the Hub allows no repository with this name, OWNER/NAME."""
    from huggingface_hub.errors import HFValidationError
    from huggingface_hub.utils import validate_repo_id  # type: ignore[attr-defined]  # it is imported there

    try:
        validate_repo_id(name)
    except HFValidationError as error:
        raise SettingsError(f"--repo {name}: {first_line(error)}") from None


def send(parts: Parts, settings: PushSettings) -> str:
    """Create the repository if it does not exist, upload the files in one commit, and return its URL.

    The same commit deletes files of an earlier push that are not among ``parts``.
    """
    from huggingface_hub import CommitOperationAdd, CommitOperationDelete, HfApi, get_token

    token = get_token()
    if not token:
        raise SettingsError(f"there is no token for the Hub; {_TOKEN}")
    api, repo, kind = HfApi(endpoint=endpoint(), token=token), settings.repo, parts.kind
    with _readable_errors(settings, token):
        api.create_repo(repo, repo_type=kind, private=settings.private or None, exist_ok=True)
        if settings.private and not api.repo_info(repo, repo_type=kind).private:
            raise SettingsError(
                f"--repo {repo} exists and is public; make it private on the Hub first, or give another name"
            )
        branch = settings.revision
        if branch and branch != "main" and not branch.startswith("refs/"):
            api.create_branch(repo, branch=branch, repo_type=kind, exist_ok=True)
        adds = [CommitOperationAdd(name, content) for name, content in parts.files.items()]
        present = api.list_repo_files(repo, repo_type=kind, revision=branch)
        old = [name for name in present if name not in parts.files and _OWN_FILES[kind].fullmatch(name)]
        done = api.create_commit(
            repo,
            [*adds, *map(CommitOperationDelete, old)],
            commit_message="Written by pairsmith",
            repo_type=kind,
            revision=branch,
        )
    return str(done.commit_url)


@contextmanager
def _readable_errors(settings: PushSettings, token: str) -> Iterator[None]:
    """Turn the exceptions of the Hub's client into pairsmith's errors, in one line and without the token."""
    from huggingface_hub.errors import HfHubHTTPError, OfflineModeIsEnabled

    def without_token(text: str) -> str:
        return redacted(text.replace(token, "***"))

    try:
        yield
    except PairsmithError:
        raise
    except OfflineModeIsEnabled:
        raise SettingsError("HF_HUB_OFFLINE is set, so nothing can be uploaded; unset it") from None
    except HfHubHTTPError as error:
        code, repo = error.response.status_code, settings.repo
        answer = without_token(first_line(Exception(error.server_message or error)))
        if code == 401:
            raise SettingsError(f"the Hub does not accept the token; {_TOKEN}") from None
        if code == 403:
            raise SettingsError(
                f"the Hub does not let you write to {repo} ({answer}); name a repository of your "
                "own as --repo, or use a token with write access"
            ) from None
        if code < 500:
            raise SettingsError(f"the Hub rejected the upload to {repo} (status {code}: {answer})") from None
        raise RemoteError(f"the Hub failed (status {code}: {answer}); try again later") from None
    except ValueError as error:  # names and cards that the Hub does not allow
        raise SettingsError(without_token(first_line(error))) from None
    except Exception as error:  # each transport raises its own types for a failed connection
        why = without_token(first_line(error))
        raise RemoteError(f"the Hub ({endpoint()}) cannot be reached: {why}; check the connection") from None
