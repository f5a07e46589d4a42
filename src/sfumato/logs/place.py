"""Where a service keeps the log of a run: a line in logs.json of the run's folder, so that a resumed run finds it."""

from pathlib import Path

from sfumato._check import InputError
from sfumato._files import read_json, write_json


class Place:
    """The name that a service has given to the log of a run.

    Args:
        run: the run's folder; None forgets it.
        service: whose log.
    """

    def __init__(self, run: str | Path | None, service: str) -> None:
        self.run = None if run is None else Path(run).resolve()
        self._file = None if self.run is None else self.run / "logs.json"
        self._service = service

    @property
    def known(self) -> str | None:
        """The name, if the run has been logged there before.

        Raises:
            InputError: the file is damaged.
        """
        return self._all().get(self._service)

    def keep(self, name: str) -> None:
        """Write it down."""
        if self._file is not None:
            write_json(self._file, {**self._all(), self._service: name})

    def _all(self) -> dict[str, str]:
        if self._file is None or not self._file.exists():
            return {}
        try:
            found = read_json(self._file)
        except ValueError as error:
            raise InputError(f"{self._file} is damaged ({error!s:.200}); delete it to log to a new place") from None
        return found if isinstance(found, dict) else {}
