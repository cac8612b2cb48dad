"""A progress that keeps what a run says, for tests of what people are told."""

from pairsmith.core.progress import Silent


class Heard(Silent):
    """``lines`` has everything that was said, in order."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def say(self, text: str) -> None:
        self.lines.append(text)
