"""The skill for coding assistants names only commands and options that there are."""

import re
import shlex

import typer
import yaml
from tests.documented import ROOT, blocks

from pairsmith.cli.app import make_app

TEXT = (ROOT / "skills" / "pairsmith" / "SKILL.md").read_text(encoding="utf-8")
COMMANDS = [
    shlex.split(line, comments=True)[1:]
    for block in blocks(TEXT)
    for line in block.text.splitlines()
    if line.startswith("pairsmith ")
]


def test_its_front_matter_has_a_name_and_a_description():
    about = yaml.safe_load(TEXT.split("---\n")[1])
    assert about["name"] == "pairsmith"
    assert 50 < len(about["description"]) < 1024


def test_its_commands_and_options_exist():
    assert len(COMMANDS) > 10
    for words in COMMANDS:
        command = typer.main.get_command(make_app())
        while hasattr(command, "commands") and words and words[0] in command.commands:
            command, *words = command.commands[words[0]], *words[1:]
        assert not hasattr(command, "commands") or command.name == "tasks", words
        options = {option for parameter in command.params for option in parameter.opts}
        given = {word for word in words if re.match("--[a-z]", word)}
        assert given <= options, given - options


def test_its_task_can_be_read(tmp_path):
    from pairsmith.data.tasks import load_task

    (yaml_block,) = (block for block in blocks(TEXT) if block.language == "yaml")
    (tmp_path / "urgency.yaml").write_text(yaml_block.text)
    assert load_task(str(tmp_path / "urgency.yaml")).label_names == ("urgent", "patient")
