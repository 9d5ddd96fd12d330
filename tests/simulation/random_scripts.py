"""Scripts of a history, with random outcomes."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from nextfire.domain.ids import parse_execution_id
from nextfire.domain.ports.scripts import ScriptCall, ScriptExit, Supervisor
from nextfire.testing.kernel import Actor
from tests.fakes import MemoryScriptRunner, Script

if TYPE_CHECKING:
    from tests.simulation.system import System


@dataclass(frozen=True, slots=True)
class RandomScripts:
    """`ScriptRunner` that plays random scripts."""

    system: System
    actor: Actor
    kinds: list[dict[str, Any]] = field(default_factory=list)

    def run(self, call: ScriptCall, supervisor: Supervisor) -> ScriptExit:
        dice = self.system.kernel.dice
        script = Script(
            exit_code=dice.choice(self.system.exits),
            lasts=timedelta(seconds=dice.choice([0, 0, 0, 1, 3, 25, 90])),
            frozen=dice.random() < 0.06,
            saves=dice.choice([None, None, b"1"]),
            stdout=dice.choice(["", "", "line\n" * 400]),
        )
        environment = call.environment
        execution_id = environment["NEXTFIRE_EXECUTION_ID"]
        attempt = int(environment["NEXTFIRE_ATTEMPT"])
        script.result = json.dumps({"of": execution_id, "attempt": attempt}).encode()
        self.system.began(self.actor, execution_id, attempt, call.payload, call.upstream)
        self.system.kernel.log(
            self.actor.name,
            f"SCRIPT {execution_id} attempt {attempt}: {script.lasts.total_seconds():.0f} s, "
            f"exit {script.exit_code}{', frozen' if script.frozen else ''}",
        )
        runner = MemoryScriptRunner(self.actor)
        runner.scripts.append(script)
        key = parse_execution_id(environment["NEXTFIRE_TENANT"], execution_id)
        with self.system.effects.of(self.actor, key, attempt, frozen=script.frozen):
            return runner.run(call, supervisor)
