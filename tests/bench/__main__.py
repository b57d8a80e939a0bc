"""``make bench``: every measurement in turn, each in a process of its own, so that none inherits another's memory.

``make bench ARGS="reads"`` runs the named ones only. Ends with status 1 when one could not be made.
"""

import subprocess
import sys
from typing import Final

_MEASUREMENTS: Final = ("pipeline", "worker", "reads", "claims", "noop_jobs")


def main(names: list[str]) -> int:
    """Runs the named measurements, all without a name; returns the exit status."""
    unknown = sorted(set(names) - set(_MEASUREMENTS))
    if unknown:
        print(f"no such measurement: {', '.join(unknown)}; there are {', '.join(_MEASUREMENTS)}", file=sys.stderr)
        return 2
    failed = []
    for name in names or _MEASUREMENTS:
        print(f"== {name}", flush=True)
        if subprocess.run([sys.executable, "-m", f"tests.bench.{name}"], check=False).returncode:
            failed.append(name)
    if failed:
        print(f"not measured: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
