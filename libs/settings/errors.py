"""What is wrong with an environment."""


class SettingsError(Exception):
    """The environment does not fit the process. `problems` name variables, never their values."""

    def __init__(self, process: str, problems: tuple[str, ...]) -> None:
        self.process = process
        self.problems = problems
        super().__init__(f"{process} cannot start with this environment:\n" + "\n".join(f"- {p}" for p in problems))
