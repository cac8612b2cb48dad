"""Ray clusters of several nodes, which come and go."""

import multiprocessing
import os
import signal
import subprocess
import sys
import textwrap

import pytest
from tests.runs.on_nodes import OnNode, until_its_head_is_lost
from tests.tiny_bart import make_asker
from tests.training.few import PLAYS, passage, write

from pairsmith.core.progress import Silent
from pairsmith.models.cross_encoder import load_cross_encoder
from pairsmith.models.reader import load_reader
from pairsmith.runs import Run
from pairsmith.runs.executors import ExecutorChoice, execute
from pairsmith.runs.work import Done
from pairsmith.steps.generate.route import generate
from pairsmith.steps.generate.settings import GenerateSettings
from pairsmith.steps.mine.filter import filter_pairs
from pairsmith.steps.mine.route import mine
from pairsmith.steps.mine.settings import FilterSettings, MineSettings
from pairsmith.steps.questions.ask import ask
from pairsmith.steps.questions.relabel import relabel
from pairsmith.steps.questions.settings import AskSettings, RelabelSettings
from pairsmith.steps.training.teacher import save_teacher

pytest.importorskip("ray")

# Ray leaves processes and sockets of its own to the garbage collector.
pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings(
        "ignore::pytest.PytestUnraisableExceptionWarning", "ignore::ResourceWarning", "ignore::FutureWarning"
    ),
    pytest.mark.skipif(sys.platform != "linux", reason="Ray runs several nodes on one machine on Linux only"),
]


@pytest.fixture(scope="module")
def cluster():
    """A cluster of a head without cores, to which tests add nodes."""
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
    yield cluster
    cluster.shutdown()


@pytest.fixture
def node(cluster):
    """Adds a node of one core; those that are left at the end are removed."""
    nodes = []

    def add():
        nodes.append(cluster.add_node(num_cpus=1))
        return nodes[-1]

    yield add
    for member in nodes:
        if member in cluster.worker_nodes:
            cluster.remove_node(member, allow_graceful=False)


def files(out):
    return {str(path.relative_to(out)): path.read_bytes() for path in sorted(out.rglob("*.parquet"))}


@pytest.fixture
def settings(tiny_gpt2, tmp_path):
    (tmp_path / "in.txt").write_text("".join(f"text number {i}\n" for i in range(12)))
    return GenerateSettings(
        model=str(tiny_gpt2), inputs=[str(tmp_path / "in.txt")], shard_size=2, max_tokens=12
    )


@pytest.mark.long
def test_on_two_nodes_the_bytes_are_those_of_one_process(cluster, node, settings, tmp_path):
    generate(settings, Run(tmp_path / "here", Silent()))
    node()
    node()
    there = settings.model_copy(update={"executor": "ray", "workers": 2, "ray_address": cluster.address})
    generate(there, Run(tmp_path / "ray", Silent()))
    assert files(tmp_path / "ray") == files(tmp_path / "here")


@pytest.mark.long
def test_mining_and_filtering_on_two_nodes_give_the_bytes_of_one_process(
    cluster, node, tiny_bert, tiny_gpt2, tmp_path
):
    inputs = write(tmp_path / "questions.jsonl", [{"question": f"who plays the {play}?"} for play in PLAYS])
    outputs = write(tmp_path / "passages.jsonl", [{"text": passage(number)} for number in range(12)])
    given = MineSettings(
        kind="reading",
        inputs=[inputs],
        outputs=[outputs],
        encoder=str(tiny_bert),
        shard_size=3,
        search_rows=4,
        retrieval="candidates",
        best=20,
    )
    mine(given, Run(tmp_path / "here", Silent()))
    node()
    node()
    there = given.model_copy(update={"executor": "ray", "workers": 2, "ray_address": cluster.address})
    mine(there, Run(tmp_path / "ray", Silent()))
    assert files(tmp_path / "ray") == files(tmp_path / "here")
    judges = {
        "cross-encoder": write_judge(tiny_bert, tmp_path / "judge"),
        "likelihood": tiny_gpt2,
    }
    for judge, model in judges.items():
        judged = FilterSettings(
            pairs=str(tmp_path / "here"), judge=judge, model=str(model), best=3, shard_size=2, device="cpu"
        )
        one, two = tmp_path / judge, tmp_path / f"{judge}-2"
        filter_pairs(judged, Run(one, Silent()))
        there = judged.model_copy(update={"executor": "ray", "workers": 2, "ray_address": cluster.address})
        filter_pairs(there, Run(two, Silent()))
        assert files(two) == files(one)


def write_judge(base, out):
    judge = load_cross_encoder(str(base), device="cpu", fresh_head=True, seed=1)
    judge.model.save_pretrained(out)
    judge.tokenizer.save_pretrained(out)
    return out


@pytest.mark.long
def test_questions_on_two_nodes_are_asked_and_answered_alike(cluster, node, tiny_bert, tmp_path):
    texts = write(tmp_path / "texts.jsonl", [{"text": passage(number)} for number in range(12)])
    ask_settings = AskSettings(inputs=[texts], model="cloze", questions=3, shard_size=3)
    teacher = {"model": str(write_teacher(tiny_bert, tmp_path / "teacher")), "shard_size": 5, "device": "cpu"}
    ask(ask_settings, Run(tmp_path / "asked", Silent()))
    answered = RelabelSettings(data=[str(tmp_path / "asked")], **teacher)
    relabel(answered, Run(tmp_path / "answered", Silent()))
    node()
    node()
    where = {"executor": "ray", "workers": 2, "ray_address": cluster.address}
    ask(ask_settings.model_copy(update=where), Run(tmp_path / "asked-2", Silent()))
    relabel(answered.model_copy(update=where), Run(tmp_path / "answered-2", Silent()))
    for name in ("asked", "answered"):
        assert files(tmp_path / f"{name}-2") == files(tmp_path / name)


@pytest.mark.long
def test_what_a_network_draws_on_two_nodes_is_what_one_process_draws(cluster, node, tmp_path):
    texts = write(tmp_path / "texts.jsonl", [{"text": passage(number)} for number in range(12)])
    ask_settings = AskSettings(
        inputs=[texts],
        model=str(make_asker(tmp_path / "asker")),
        questions=3,
        top_p=1.0,
        shard_size=3,
        device="cpu",
    )
    folder = ask(ask_settings, Run(tmp_path / "here", Silent()))
    assert folder.rows > 5
    assert folder.rejects().num_rows > 20
    node()
    node()
    where = {"executor": "ray", "workers": 2, "ray_address": cluster.address}
    ask(ask_settings.model_copy(update=where), Run(tmp_path / "ray", Silent()))
    assert files(tmp_path / "ray") == files(tmp_path / "here")


def write_teacher(base, out):
    teacher = load_reader(str(base), device="cpu", fresh_head=True, perceptrons=True)
    save_teacher(teacher, "A random teacher.", out)
    return out


@pytest.mark.long
@pytest.mark.parametrize("room", [True, False])
def test_a_node_that_is_removed_loses_nothing(cluster, node, room):
    """With room for another worker elsewhere, and without."""
    first, second = node(), node()
    items = list(range(20))
    said = []
    outcomes = execute(
        OnNode(), items, lambda _: None, ExecutorChoice("ray", 2, cluster.address), said.append
    )
    results = [next(outcomes)]
    while {outcome.result[1] for outcome in results} != {first.node_id, second.node_id} and len(results) < 10:
        results.append(next(outcomes))
    if room:
        node()
    cluster.remove_node(second, allow_graceful=False)
    results += outcomes
    assert sorted(outcome.item for outcome in results) == items
    assert all(isinstance(outcome, Done) for outcome in results)


HEAD = textwrap.dedent(
    """
    import os, sys
    from ray.cluster_utils import Cluster
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    print(cluster.address, flush=True)
    for kind, processes in cluster.head_node.all_processes.items():
        for each in processes:
            print(each.process.pid, flush=True)
    print("ready", flush=True)
    sys.stdin.read()
    """
)


@pytest.mark.long
def test_a_head_that_is_lost_ends_the_run_in_words():
    head = subprocess.Popen(
        [sys.executable, "-c", HEAD], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    address, *lines = iter(head.stdout.readline, "ready\n")
    context = multiprocessing.get_context("spawn")
    connection, theirs = context.Pipe()
    process = context.Process(target=until_its_head_is_lost, args=(address.strip(), theirs))
    process.start()
    theirs.close()
    assert connection.recv() == 1
    for pid in lines:
        os.kill(int(pid), signal.SIGKILL)
    connection.send("killed")
    assert (
        "is gone; finished work is kept: start the cluster and run the same command again"
        in connection.recv()
    )
    process.join()
    connection.close()
    head.stdin.close()
    head.wait()
    head.stdout.close()
