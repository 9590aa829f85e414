"""Running the commands of a build."""

from __future__ import annotations

from pathlib import Path

import pytest
from minipve.base.errors import UserError
from minipve.base.process import silent
from minipve.image import build_tools


def test_failed_command_reports_its_error_line(tmp_path: Path) -> None:
    words = ["sh", "-c", "echo one; echo 'E: no such package'; echo three; exit 3"]
    with pytest.raises(UserError, match="sh failed: E: no such package") as refused:
        build_tools.run_logged(words, tmp_path / "log", silent)
    assert "three" in str(refused.value.hint)
    assert (tmp_path / "log").read_text().startswith("one\n")
