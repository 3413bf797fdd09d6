"""``python -m tests.engines.meetings_at_length N`` compares the verdicts on N random sets of calls with all
interleavings."""

from __future__ import annotations

import sys

from tests.engines.test_meetings import differences

if __name__ == "__main__":
    wrong, seen = differences(28, int(sys.argv[1]))
    print(f"{sys.argv[1]} sets of calls: {wrong} differ; verdicts {dict(sorted(seen.items()))}")
    sys.exit(wrong > 0)
