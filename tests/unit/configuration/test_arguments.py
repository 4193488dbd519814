"""From flags, environment and config file to a configuration: order, spellings, and every mistake found."""

import io
import socket
from pathlib import Path

import pytest

from edlz.services.configuration.arguments import Reading, parse_arguments, read_config
from edlz.services.configuration.flags import LATER_FLAGS, Reader
from edlz.services.configuration.nearest import did_you_mean, edit_distance, nearest
from edlz.services.configuration.problems import InvalidConfigError, Problem, print_problems

NEEDED = ("--model_def=m.n.custom_model", "--training_data=data")
ELSEWHERE = ("--master_addr=localhost:50001",)


def read(*argv: str, reader: str = "train", **environ: str) -> Reading:
    needed = NEEDED if reader in ("train", "master") else ()
    return read_config([*needed, *argv], reader, environ)  # type: ignore[arg-type]


def only_error(reading: Reading) -> tuple[str, str]:
    (problem,) = reading.errors
    return problem.message, problem.help


def test_flags_are_written_with_equals_or_a_blank_and_with_dashes_or_underscores() -> None:
    config = read("--num_epochs=2", "--minibatch-size", "10", "--seed", "5", "--job-name=a").checked()
    assert (config.num_epochs, config.minibatch_size, config.seed, config.job_name) == (2, 10, 5, "a")


@pytest.mark.parametrize("word", ["=true", "=Yes", "=t", "=Y", "=1", "=on", ""])
def test_yes(word: str) -> None:
    assert read(f"--use_async{word}", "--seed=3").checked().use_async


@pytest.mark.parametrize("word", ["=false", "=NO", "=f", "=n", "=0", "=off"])
def test_no(word: str) -> None:
    assert not read(f"--onednn{word}").checked().onednn


def test_a_yes_or_no_may_stand_behind_a_blank() -> None:
    assert not read("--onednn", "false").checked().onednn
    assert read("--use_async", "--num_epochs=2").checked().use_async


def test_older_spellings() -> None:
    config = read_config(
        ["--model_file=m.py", "--training_data_dir=a", "--evaluation_data_dir=b", "--input_fn=parse"],
        "master",
        {},
    ).checked()
    assert (config.training_data, config.validation_data, config.feed) == ("a", "b", "parse")


def test_the_hand_run_of_the_developer_guide() -> None:
    master = read_config(
        [
            "--model_file=mnist_functional_api.py",
            "--job_name=test",
            "--training_data_dir=/data/mnist/train",
            "--evaluation_data_dir=/data/mnist/test",
            "--records_per_task=100",
            "--num_epochs=2",
            "--checkpoint_steps=2",
            "--codec_type=tf_example",
            "--grads_to_wait=2",
            "--minibatch_size=10",
            "--log_level=INFO",
        ],
        "master",
        {},
    )
    config = master.checked()
    assert (config.num_workers, config.num_ps_pods, config.port) == (0, 0, 50001)
    assert (config.records_per_task, config.grads_to_wait) == (100, 2)
    assert master.warnings == ()
    worker = read_config(
        [
            "--worker_id=1",
            "--model_file=m.py",
            "--codec_type=tf_example",
            "--master_addr=localhost:50001",
            "--log_level=info",
        ],
        "worker",
        {},
    ).checked()
    assert (worker.worker_id, worker.log_level) == (1, "INFO")


def test_a_ps_listens_on_a_port_of_its_own() -> None:
    assert read("--ps_id=3", reader="ps").checked().port == 2225
    assert read("--ps_id=3", "--port=9", reader="ps").checked().port == 9


# ---------------------------------------------------------------- order


def test_flag_wins_over_environment_over_file_over_default(tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    path.write_text("seed: 1\nnum_epochs: 1\nminibatch_size: 11\n")
    reading = read(f"--config={path}", "--seed=3", EDLZ_SEED="2", EDLZ_NUM_EPOCHS="2")
    config = reading.checked()
    assert (config.seed, config.num_epochs, config.minibatch_size, config.num_workers) == (3, 2, 11, 2)
    assert config.given >= {"seed", "num_epochs", "minibatch_size"}
    assert "num_workers" not in config.given


def test_the_environment_may_name_the_config_file(tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    path.write_text("seed: 9\n")
    assert read(EDLZ_CONFIG=str(path)).checked().seed == 9


def test_empty_variables_and_those_of_others_set_nothing() -> None:
    reading = read(EDLZ_SEED="", EDLZ_WORKER_ID="7", EDLZ_HOME="x", EDLZ_DEBUG="1", SEED="4")
    assert reading.checked().seed == 0
    assert reading.warnings == ()


def test_a_misspelt_variable_is_a_warning() -> None:
    (warning,) = read(EDLZ_NUM_WORKER="3").warnings
    assert (warning.message, warning.help) == (
        "EDLZ_NUM_WORKER sets nothing",
        "did you mean EDLZ_NUM_WORKERS?",
    )


@pytest.mark.parametrize(
    "variable", ["EDLZ_TEST_IMAGE", "EDLZ_TEST_MOUNTS", "EDLZ_TEST_KUBECTL", "EDLZ_TEST_DATA", "EDLZ_TOKEN"]
)
def test_a_variable_that_is_like_no_flag_is_somebody_elses(variable: str) -> None:
    assert read(**{variable: "x"}).warnings == ()


def test_a_variable_with_words_left_out_is_a_warning() -> None:
    (warning,) = read(EDLZ_BATCH_SIZE="3").warnings
    assert warning.help == "did you mean EDLZ_MINIBATCH_SIZE?"


# ---------------------------------------------------------------- the catalogue of mistakes


def test_row_1_unknown_flag() -> None:
    assert only_error(read("--num_worker=3")) == ("no flag --num_worker", "did you mean --num_workers?")
    assert only_error(read("--num_ps", "3")) == ("no flag --num_ps", "did you mean --num_ps_pods?")
    assert only_error(read("--zzz")) == ("no flag --zzz", "all flags: edlz train --help-all")


def test_row_2_flag_of_another_command() -> None:
    message, help_line = only_error(read("--prediction_data=x"))
    assert message.startswith("--prediction_data belongs to edlz predict")
    assert help_line == "for training: --training_data"
    message, _ = only_error(read("--worker_id=1"))
    assert message == "--worker_id belongs to python -m edlz.services.worker"
    message, help_line = only_error(read("--worker_id=1", "--minibatch_size=3", reader="worker"))
    assert message == "--minibatch_size belongs to edlz train"
    assert "comes from the master" in help_line


def test_row_3_bad_value() -> None:
    expected = ('--minibatch_size="64k" is not a whole number', "e.g. --minibatch_size=64")
    assert only_error(read("--minibatch_size=64k")) == expected
    message, _ = only_error(read(EDLZ_MINIBATCH_SIZE="64k"))
    assert message == '--minibatch_size="64k" (EDLZ_MINIBATCH_SIZE) is not a whole number'


@pytest.mark.parametrize(
    ("flag", "message"),
    [
        ("--minibatch_size=0", "--minibatch_size=0 is below 1"),
        ("--minibatch_size=1.5", '--minibatch_size="1.5" is not a whole number'),
        ("--num_epochs=-1", "--num_epochs=-1 is below 0"),
        ("--recovery_snapshot_secs=nan", '--recovery_snapshot_secs="nan" is not a number'),
        ("--use_async=maybe", '--use_async="maybe" is neither yes nor no'),
        ("--num_epochs", "--num_epochs needs a value"),
    ],
)
def test_more_bad_values(flag: str, message: str) -> None:
    assert only_error(read(flag))[0] == message


def test_the_smallest_value_is_allowed() -> None:
    assert read("--minibatch_size=1", "--records_per_task=1").checked().minibatch_size == 1


def test_a_port_is_a_port() -> None:
    assert only_error(read("--port=70000", reader="master"))[0] == "--port=70000 is above 65535"


def test_row_4_bad_choice_from_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("job.yaml").write_text("# mine\nseed: 1\n\ndistribution_strategy: ParameterServer\n")
    assert only_error(read("--config=job.yaml")) == (
        '--distribution_strategy="ParameterServer" (job.yaml:4) is none of '
        "Local, ParameterServerStrategy, AllreduceStrategy",
        "did you mean ParameterServerStrategy?",
    )


def test_a_strategy_that_is_not_there_yet_is_refused() -> None:
    assert only_error(read("--distribution_strategy=Local")) == (
        "--distribution_strategy=Local: training in one process is not in this version of edlz",
        "use --distribution_strategy=ParameterServerStrategy",
    )
    assert read("--distribution_strategy=ParameterServerStrategy").errors == ()


ALLREDUCE = "--distribution_strategy=AllreduceStrategy"


def test_a_group_of_workers_has_no_parameter_servers() -> None:
    config = read(ALLREDUCE).checked()
    assert (config.is_allreduce, config.num_ps_pods) == (True, 0)


@pytest.mark.parametrize(
    ("flag", "reason"),
    [
        ("--num_ps_pods=2", "the workers hold the model themselves"),
        ("--use_async", "the members of a group take synchronous steps"),
        ("--sync_version_tolerance=1", "all members of a group are at one version"),
        ("--watch_data", "all data is there when a group begins"),
        ("--num_epochs=0", "a group ends with its last epoch"),
        ("--get_model_steps=4", "a member has the model itself, and pulls nothing"),
        ("--lr_staleness_modulation", "all members of a group are at one version"),
        ("--embedding_threshold_bytes=9", "every Embedding stays in the model, whatever its size"),
        ("--embedding_threshold_bytes=2097152", "every Embedding stays in the model, whatever its size"),
    ],
)
def test_what_a_group_of_workers_cannot_do(flag: str, reason: str) -> None:
    assert only_error(read(ALLREDUCE, flag)) == (
        f"{flag} with --distribution_strategy=AllreduceStrategy: {reason}",
        "drop one of the two",
    )


def test_a_group_that_is_resumed_can_have_servers_if_its_strategy_changes() -> None:
    resumed = read_config([*NEEDED, ALLREDUCE, "--num_ps_pods=2"], "train", {}, begins_job=False)
    assert only_error(resumed)[1] == "--distribution_strategy=ParameterServerStrategy"


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("--num_epochs=2",), "--watch_data with num_epochs=2: data that has no end is passed over once"),
        (
            ("--training_data=s3://bucket/rows",),
            "--watch_data with training_data=s3://bucket/rows: only folders of this machine are watched",
        ),
    ],
)
def test_what_data_that_grows_excludes(flags: tuple[str, ...], message: str) -> None:
    assert only_error(read("--watch_data", *flags))[0] == message
    assert read("--watch_data", "--num_epochs=0").errors == ()


@pytest.mark.parametrize("flag", ["--watch_data", "--num_epochs=0"])
def test_a_job_without_an_end_is_told_that_nothing_is_evaluated_before(flag: str) -> None:
    (warning,) = read(flag, "--validation_data=v").warnings
    assert "is evaluated when it is ended" in warning.message
    assert read(flag, "--validation_data=v", "--evaluation_steps=10").warnings == ()


def test_what_was_trained_by_a_group_has_no_threshold_either() -> None:
    data = ("--model_zoo=zoo", "--model_def=m.f", "--validation_data=d", "--checkpoint_dir_for_init=c")
    flag = "--embedding_threshold_bytes=9"
    found = read(ALLREDUCE, flag, *data, reader="evaluate")
    message = f"{flag} with --distribution_strategy=AllreduceStrategy"
    assert [error.message.partition(":")[0] for error in found.errors] == [message]
    assert read(ALLREDUCE, *data, reader="evaluate").errors == ()


def test_a_service_of_a_group_takes_what_it_is_started_with() -> None:
    """No threshold at all is written into its arguments, and into the file that repeats a job."""
    arguments = read(ALLREDUCE).checked().to_arguments("master")
    assert any(argument.startswith("--embedding_threshold_bytes=") for argument in arguments)
    assert read_config(arguments, "master", {}).errors == ()


def test_row_5_flags_that_exclude_each_other() -> None:
    assert only_error(read("--use_async", "--grads_to_wait=2")) == (
        "--use_async with --grads_to_wait=2: async applies each gradient at once",
        "drop one of the two",
    )
    assert read("--use_async", "--grads_to_wait=1").errors == ()


def test_row_6_unknown_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("job.yaml").write_text("\n" * 6 + "num_epoch: 2\n")
    assert only_error(read("--config=job.yaml")) == (
        'job.yaml:7: unknown key "num_epoch"',
        "did you mean num_epochs?",
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("seed: [1, 2]", "job.yaml:1: seed has several values, not one"),
        ("seed: 1\nseed: 2", "job.yaml:2: seed stands twice"),
        ("training_data: a\ntraining-data-dir: b", "job.yaml:2: training_data stands twice"),
        ("- seed", "job.yaml holds no flags"),
        ("seed: 'x", "job.yaml:1: not YAML: found unexpected end of stream"),
        pytest.param("seed: " + "[" * 3000, "job.yaml: not YAML: nested too deeply", id="deep"),
        ("? [seed]\n: 1", "job.yaml:1: a key is not a string"),
        ("? &key [*key]\n: 1", "job.yaml:1: a key is not a string"),
        ("config: other.yaml", "job.yaml:1: a config file cannot name another"),
        ("seed: two", '--seed="two" (job.yaml:1) is not a whole number'),
    ],
)
def test_mistakes_in_a_config_file(
    text: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("job.yaml").write_text(text)
    assert only_error(read("--config=job.yaml"))[0] == message


def test_a_config_file_may_be_empty_or_leave_a_key_empty(tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    path.write_text("")
    assert read(f"--config={path}").errors == ()
    path.write_text("seed:\nuse_async: yes\n")
    assert read(f"--config={path}").checked().use_async


def test_a_config_file_that_is_not_there(tmp_path: Path) -> None:
    (tmp_path / "job.yaml").touch()
    message, help_line = only_error(read(f"--config={tmp_path}/jop.yaml"))
    assert message == f'--config="{tmp_path}/jop.yaml" does not exist'
    assert help_line == f"nearest: {tmp_path}/job.yaml"


@pytest.mark.parametrize("name", ["nowhere/job.yaml", "", "list.yaml", "colon.yaml", "bytes.yaml"])
def test_what_a_file_that_cannot_be_read_may_hold_is_not_called_missing(tmp_path: Path, name: str) -> None:
    (tmp_path / "list.yaml").write_text("- 1\n")
    (tmp_path / "colon.yaml").write_text("a: b: c\n")
    (tmp_path / "bytes.yaml").write_bytes(b"\xff")
    for reader in ("train", "worker"):
        found = read_config([f"--config={tmp_path / name}"], reader, {})
        assert len(found.errors) == 1, found.errors
        assert found.errors[0].help, "it says what to do"


def test_keys_for_a_service_do_not_disturb_the_others(tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    path.write_text("num_epochs: 3\nseed: 4\n")
    assert read("--worker_id=1", f"--config={path}", reader="worker").errors == ()


def test_row_14_idle_workers() -> None:
    (warning,) = read("--num_workers=4", "--grads_to_wait=2").warnings
    assert (warning.message, warning.help) == (
        "num_workers=4, but grads_to_wait=2: 2 workers would wait",
        "--grads_to_wait=4, or --num_workers=2",
    )
    argv = [*NEEDED, "--num_workers=4", "--grads_to_wait=2"]
    (resumed,) = read_config(argv, "train", {}, begins_job=False).warnings
    assert resumed.help == "--num_workers=2", "its steps are planned"
    assert read("--num_workers=4").warnings == ()
    assert read("--num_workers=4", "--use_async").warnings == ()


def test_row_16_a_name_that_is_not_allowed() -> None:
    message, help_line = only_error(read("--job_name=My_Job"))
    assert message.startswith('--job_name="My_Job" is no job name')
    assert help_line == "--job_name=my-job"


@pytest.mark.parametrize("name", sorted(LATER_FLAGS))
def test_flags_of_later_work_are_refused(name: str) -> None:
    message, help_line = only_error(read(f"--{name}=x"))
    assert message.startswith(f"--{name}")
    assert "not in this version of edlz" in message
    assert help_line


def test_the_refusal_of_a_later_flag() -> None:
    expected = "--job_command: running a part of edlz or another framework is not in this version of edlz"
    assert only_error(read("--job_command=x"))[0] == expected
    assert only_error(read("--job-command", "x"))[0] == expected


def test_what_is_needed_is_asked_for() -> None:
    reading = read_config([], "train", {})
    assert [problem.message for problem in reading.errors] == [
        "--model_def is missing",
        "--training_data is missing",
    ]
    assert only_error(read(reader="worker"))[0] == "--worker_id is missing"
    assert only_error(read("--model_file=m.py"))[0] == "--model_def with --model_file: both name the model"


def test_other_combinations() -> None:
    assert only_error(read("--num_workers=0"))[0] == "--num_workers=0: nobody would train"
    assert read("--num_workers=0", reader="master").errors == ()
    (warning,) = read("--evaluation_steps=50").warnings
    assert warning.message == "evaluation_steps=50 without validation_data: nothing is evaluated"
    (warning,) = read("--records_per_task=10").warnings
    assert warning.message.startswith("records_per_task=10 is below minibatch_size=64")
    (warning,) = read("--keep_checkpoint_max=2").warnings
    assert warning.message == "keep_checkpoint_max=2 without checkpoint_steps: none is saved"
    (warning,) = read("--unknown_ids=zeros").warnings
    assert warning.message == "unknown_ids=zeros without output: nothing is exported"


def test_how_the_model_comes_out() -> None:
    assert not read(
        "--output=out", "--output_format=saved_model,keras,safetensors", "--unknown_ids=mean"
    ).errors
    for flags, message in (
        (
            ("--output=out", "--output_format=onxx"),
            '--output_format="onxx" is none of saved_model, keras, safetensors',
        ),
        (
            ("--output=m.keras", "--output_format=saved_model"),
            "--output_format=saved_model with m.keras: a file has one format",
        ),
        (("--output=out", "--unknown_ids=zero"), '--unknown_ids="zero" is none of initial, zeros, mean'),
    ):
        (error,) = read(*flags).errors
        assert error.message == message
    message, _ = only_error(read("--get_model_steps=4"))
    assert message == "--get_model_steps=4 without --use_async: in sync mode no gradient is stale"
    assert only_error(read("--lr_staleness_modulation"))[0].startswith("--lr_staleness_modulation without")
    assert read("--get_model_steps=4", "--lr_staleness_modulation", "--use_async").errors == ()
    message, _ = only_error(read("--sync_version_tolerance=1", "--use_async"))
    assert message == "--sync_version_tolerance=1 with --use_async: async takes gradients of any age"
    assert only_error(read("--model_params=x"))[0].startswith("--model_params")
    message, _ = only_error(read("--worker_id=1", "--master_addr=nowhere", reader="worker"))
    assert message == '--master_addr="nowhere" is not HOST:PORT'


def test_a_service_that_others_reach() -> None:
    reading = read("--ps_id=1", "--host=node7", "--keys_dir=keys", reader="ps")
    assert reading.errors == ()
    assert reading.config.listen_endpoint == "tcp://*:2223"
    assert reading.config.reachable_at("tcp://0.0.0.0:2223") == "tcp://node7:2223"
    message, help_ = only_error(read("--ps_id=1", "--host=0.0.0.0", reader="ps"))
    assert message == "--host=0.0.0.0 is no address that workers can connect to"
    assert "--host=HOST" in help_
    job = ("--model_def=m.f", "--training_data=d")
    assert only_error(read(*job, "--host=*", reader="master"))[0].startswith("--host=* is no address")
    assert read(*job, "--host=*", "--num_ps_pods=1", reader="master").errors == ()
    assert read(*job, "--host=*", ALLREDUCE, reader="master").errors == (), "it tells nobody where it is"
    message, _ = only_error(
        read("--worker_id=1", "--keys_dir=k", "--transport_security=none", reader="worker")
    )
    assert message == "--keys_dir=k with --transport_security=none"


def test_several_mistakes_are_found_at_once_and_bad_values_cause_no_second_ones() -> None:
    reading = read("--num_worker=1", "word", "--grads_to_wait=x", "--use_async", "--num_workers=-1")
    assert [problem.message for problem in reading.errors] == [
        "no flag --num_worker",
        '"word" belongs to no flag',
        "--num_workers=-1 is below 0",
        '--grads_to_wait="x" is not a whole number',
    ]
    with pytest.raises(InvalidConfigError, match=r"no flag --num_worker \(and 3 more\)"):
        reading.checked()


# ---------------------------------------------------------------- the services' entry


def test_a_service_prints_all_mistakes_and_leaves_with_2(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        parse_arguments(["--worker_id=x", "--zzz"], "worker")
    assert left.value.code == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.splitlines() == [
        "error: no flag --zzz",
        "help: all flags: python -m edlz.services.worker --help-all",
        'error: --worker_id="x" is not a whole number',
        "help: e.g. --worker_id=1",
    ]


def test_a_service_has_help(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        parse_arguments(["--help"], "worker")
    assert left.value.code == 0
    assert "--worker_id N" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("service", "flags"),
    [("master", NEEDED), ("ps", ("--ps_id=0", *ELSEWHERE)), ("worker", ("--worker_id=1", *ELSEWHERE))],
)
def test_row_15_a_port_in_use(
    service: Reader, flags: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(SystemExit) as left:
            parse_arguments([*flags, f"--port={port}"], service)
        assert left.value.code == 2
        error = capsys.readouterr().err
        assert f"error: port {port} is in use" in error
        assert "--port=0 for a free one" in error
    assert parse_arguments([*flags, f"--port={port}"], service).port == port
    assert parse_arguments([*flags, "--port=0"], service).port == 0


# ---------------------------------------------------------------- near names and printing


def test_near_names_are_ranked_by_shared_prefix_then_distance() -> None:
    names = ["num_epochs", "num_ps_pods", "num_workers", "minibatch_size"]
    assert nearest("num_ps", names) == ["num_ps_pods"]
    assert nearest("nun_workers", names) == ["num_workers"]
    assert nearest("batch_size", names) == ["minibatch_size"]
    assert nearest("learning_rate", names) == []
    assert nearest("aab", ["aac", "aab1", "xab", "aad", "bab"]) == ["aab1", "aac", "aad"]


def test_distance_counts_a_swap_once() -> None:
    assert edit_distance("mnits", "mnist") == 1
    assert edit_distance("", "abc") == 3
    assert edit_distance("kitten", "sitting") == 3


def test_did_you_mean() -> None:
    assert did_you_mean([]) == ""
    assert did_you_mean(["a"]) == "did you mean a?"
    assert did_you_mean(["a", "b", "c"]) == "did you mean a, b or c?"


def test_a_problem_without_help_has_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    print_problems([Problem("x is wrong")], "warning")
    assert capsys.readouterr().err == "warning: x is wrong\n"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_long_help_goes_on_below_itself_and_no_command_is_broken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    out = Terminal()
    sets = Problem("no such set", "there are: mnist, fashion_mnist, adult, movielens, criteo")
    command = Problem("x", "name one of its folders: edlz checkpoint ls a/very/long/folder --of=someone")
    alone = Problem("y", "edlz checkpoint ls a/very/long/folder --of=someone")
    print_problems([sets, command, alone], stream=out)
    assert out.getvalue().splitlines() == [
        "error: no such set",
        "help: there are: mnist, fashion_mnist,",
        "      adult, movielens, criteo",
        "error: x",
        "help: name one of its folders:",
        "      edlz checkpoint ls a/very/long/folder --of=someone",
        "error: y",
        "help: edlz checkpoint ls a/very/long/folder --of=someone",
    ]
    piped = io.StringIO()
    print_problems([sets], stream=piped)
    assert len(piped.getvalue().splitlines()) == 2
