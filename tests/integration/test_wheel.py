"""The built wheel in an environment where Headrace was never developed."""

import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
WAIT_SECONDS = 120


def run(*command: str | Path, cwd: Path) -> str:
    done = subprocess.run(
        [str(word) for word in command],
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=WAIT_SECONDS,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", target, cwd=ROOT)
    (built,) = target.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def environment(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A new environment with the wheel; what it depends on is borrowed from this one.

    A path named in a `.pth` file is searched, but `.pth` files in it are not read: our own
    editable installation stays invisible.
    """
    home = tmp_path_factory.mktemp("environment")
    venv.create(home, with_pip=False)
    python = home / "bin" / "python"
    packages = run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", cwd=home)
    borrowed = Path(packages.strip()) / "borrowed.pth"
    borrowed.write_text(sysconfig.get_path("purelib") + "\n")
    base = Path(sys.base_prefix) / "bin" / f"python3.{sys.version_info.minor}"
    install = ["install", "--quiet", "--no-deps", "--no-index", str(wheel)]
    run(base, "-m", "pip", "--python", python, "--disable-pip-version-check", *install, cwd=home)
    return home


def test_the_wheel_holds_the_package_its_types_and_its_licence_and_nothing_else(
    wheel: Path,
) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    assert "headrace/py.typed" in names
    assert any(name.endswith("licenses/LICENSE") for name in names)
    assert {name.split("/")[0].split("-")[0] for name in names} == {
        "headrace",
        "pyspark_headrace",
    }
    assert not any("tests" in name for name in names)


def test_the_command_of_the_wheel_runs(environment: Path) -> None:
    said = run(environment / "bin" / "headrace", "version", cwd=environment)
    assert said.startswith("headrace ")
    where = run(
        environment / "bin" / "python",
        "-c",
        "import headrace; print(headrace.__file__)",
        cwd=environment,
    )
    assert Path(where).is_relative_to(environment)


def test_the_fixtures_of_the_wheel_are_there(environment: Path, tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(
        "from confluent_kafka import Producer\n"
        "def test_it(headrace_broker, headrace_topic):\n"
        "    servers = headrace_broker.bootstrap_servers\n"
        "    producer = Producer({'bootstrap.servers': servers})\n"
        "    producer.produce(headrace_topic, b'x')\n"
        "    assert producer.flush(20) == 0\n"
    )
    said = run(
        environment / "bin" / "python", "-m", "pytest", "-q", "-p", "no:asyncio", cwd=tmp_path
    )
    assert "1 passed" in said
