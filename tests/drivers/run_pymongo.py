#!/usr/bin/env python3
"""Run PyMongo's own tests against a MongoDB router and write one line per test.

  run_pymongo.py --cache DIR --uri mongodb://127.0.0.1:P [--select smoke|full|all] [--out FILE]
  run_pymongo.py --cache DIR --uri ... --group crud --group cursors
  run_pymongo.py --cache DIR --uri ... --only test/test_cursor.py::TestCursor::test_limit
  run_pymongo.py --diff A.tsv B.tsv          what differs between two servers

Result lines: id <tab> passed|failed|skipped <tab> seconds <tab> first line of the reason.
The suite finds a second router on the NEXT port by itself (P+1): start two on adjacent ports to run the tests
that need several. Each test file runs in its own process; a test that hangs past its limit or kills the process
is marked failed and the file goes on behind it.
Everything is fetched by pip by name; nothing of the suite is kept in this repository.
"""
import argparse
import fnmatch
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tarfile
import time
from collections import Counter
from pathlib import Path

HERE = Path(__file__).resolve().parent
VERSION = "4.20.1"
DEPS = ["pytest==9.2.0", "pytest-asyncio==1.5.0", "pytest-timeout==2.4.0", "python-snappy==0.7.3",
        "zstandard==0.25.0", "requests==2.34.2"]
# Tests that carry one of these marks need an outside service (cloud, OCSP responder, ...).
NOT = ("auth_aws", "auth_oidc", "ocsp", "atlas_connect", "sfp", "perf", "search_index", "kms", "encryption",
       "load_balancer", "mockupdb")
OUTCOMES = ("passed", "failed", "skipped")
NO_ROUTER = ("codec-only", "not-applicable")  # groups that "full" leaves out


def sh(cmd, **kw):
    subprocess.run([str(c) for c in cmd], check=True, **kw)


def prepare(cache, version):
    """venv + unpacked tests under cache; returns (python, run dir)."""
    cache.mkdir(parents=True, exist_ok=True)
    py = cache / "venv" / "bin" / "python"
    stamp = cache / f"ready-{version}"
    run = cache / f"pymongo-{version}"
    if not stamp.exists():
        if not py.exists():
            sh([sys.executable, "-m", "venv", cache / "venv"])
        sh([py, "-m", "pip", "install", "-q", f"pymongo=={version}", *DEPS])
        sdist = cache / f"pymongo-{version}.tar.gz"
        if not sdist.exists():
            sh([py, "-m", "pip", "download", "-q", "--no-deps", "--no-binary=pymongo", "-d", cache,
                f"pymongo=={version}"])
        shutil.rmtree(run, ignore_errors=True)
        with tarfile.open(sdist) as t:  # tests only: the installed driver (with its C extension) is what runs
            for m in t.getmembers():
                parts = m.name.split("/", 1)
                if len(parts) == 2 and (parts[1].startswith("test/") or parts[1] in ("test", "pyproject.toml")):
                    m.name = parts[1]
                    t.extract(m, run, **({"filter": "data"} if hasattr(tarfile, "data_filter") else {}))
        stamp.write_text("")
    return py, run


def rows(path):
    """Lines of a TSV file as lists; '#' starts a comment line."""
    return [line.split("\t") for line in path.read_text(encoding="utf8").splitlines()
            if line and not line.startswith("#")]


def reachable(host):
    h, p = host.rsplit(":", 1)
    try:
        socket.create_connection((h.strip("[]"), int(p)), 3).close()
        return True
    except OSError:
        return False


def load(path):
    """id -> [outcome, seconds, reason]; a later line of the same id wins."""
    return {r[0]: (r[1:] + ["", ""])[:3] for r in rows(Path(path)) if len(r) > 1}


def diff(a, b):
    A, B = load(a), load(b)
    n = 0
    for k in sorted(A.keys() | B.keys()):
        x, y = A.get(k, ["absent", "", ""]), B.get(k, ["absent", "", ""])
        if x[0] != y[0]:
            n += 1
            print(f"{k}\t{x[0]}\t{y[0]}\t{y[2] or x[2]}")
    print(f"# {n} of {len(A.keys() | B.keys())} differ", file=sys.stderr)
    return 1 if n else 0


def add(out, name, why):
    with open(out, "a", encoding="utf8") as f:
        f.write(f"{name}\tfailed\t0\t{why}\n")


def run_file(f, py, run, env, out, work, a):
    """One test file in processes of its own; goes on behind a test that killed or hung one."""
    deadline = time.time() + a.file_timeout
    state = work / "running"
    done = work / "done"
    done.write_text("")
    cmd = [str(py), "-m", "pytest", f, "-p", "pm_plugin", "-o", "addopts=", "-m", f"not ({' or '.join(NOT)})",
           "-p", "no:cacheprovider", "-q", "--timeout", str(a.timeout), "--timeout-method", "signal", "--tb=short"]
    for _ in range(20):
        state.write_text("")
        with open(work / "log", "ab") as log:
            proc = subprocess.Popen(cmd, cwd=run, env=dict(env, SUITE_RUNNING=str(state), SUITE_DONE=str(done)),
                                    stdout=log, stderr=log, stdin=subprocess.DEVNULL, start_new_session=True)
            rc, last, since = None, None, time.time()
            try:
                while rc is None:
                    try:
                        rc = proc.wait(0.2)
                    except subprocess.TimeoutExpired:
                        cur = state.read_text()
                        if cur != last:
                            last, since = cur, time.time()
                        # the limit inside the process failed to end the test: end the process
                        if time.time() - since > 2 * a.timeout + 30 or time.time() > deadline:
                            rc = "a hang"
            finally:  # also on ^C: leave no test process behind
                try:
                    os.killpg(proc.pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
                proc.wait()
        if rc in (0, 1, 5):  # 5: nothing to run in this file
            return
        name = state.read_text().strip()
        if not name or time.time() > deadline:
            add(out, name or f"{f}::(process)", f"pytest ended with {rc}; the rest of the file did not run")
            return
        add(out, name, f"pytest ended with {rc} in this test")
        with open(done, "a", encoding="utf8") as d:
            d.write(name + "\n")
    add(out, f"{f}::(process)", "too many restarts")


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--cache", type=Path, help="folder for the venv and the unpacked sdist")
    p.add_argument("--version", default=VERSION)
    p.add_argument("--uri", help="mongodb://host:port (first host is used)")
    p.add_argument("--hosts", help="host:port[,host:port+1]")
    p.add_argument("--select", default="full",
                   help="smoke, full (every group that needs a router), all (every test file), or a file of patterns")
    p.add_argument("--group", action="append", default=[], help="only these groups of groups.tsv, may repeat")
    p.add_argument("--only", action="append", default=[], help="pattern or prefix of test ids, may repeat")
    p.add_argument("--async", dest="aio", action="store_true", help="the asyncio mirror (test/asynchronous) instead")
    p.add_argument("--deselect", type=Path, action="append", default=[], help="more deselect files")
    p.add_argument("--no-default-deselect", action="store_true")
    p.add_argument("--timeout", type=int, default=60, help="seconds per test")
    p.add_argument("--file-timeout", type=int, default=1500, help="seconds per test file")
    p.add_argument("--compressors", help="zlib, snappy, zstd: the suite's clients then compress")
    p.add_argument("--api-version", help="1: the suite's clients then send apiVersion")
    p.add_argument("--env", action="append", default=[], help="K=V for the suite (DB_USER, DB_PASSWORD, CA_PEM, ..)")
    p.add_argument("--out", type=Path, default=Path("pymongo.tsv"))
    p.add_argument("--known", type=Path, help="earlier result file: exit 1 only for a test that passed there")
    p.add_argument("--list", action="store_true", help="print the chosen files and stop")
    p.add_argument("--diff", nargs=2, metavar=("A", "B"))
    a = p.parse_args()
    if a.diff:
        return diff(*a.diff)
    if not a.cache or not (a.uri or a.hosts or a.list):
        p.error("--cache and one of --uri/--hosts are needed")
    cache = a.cache.resolve()
    hosts = a.hosts or re.sub(r"^mongodb://([^@/]*@)?", "", a.uri or "127.0.0.1").split("/")[0]
    hosts = [h if ":" in h else h + ":27017" for h in hosts.split(",")]
    host, port = hosts[0].rsplit(":", 1)
    nxt = f"{host}:{int(port) + 1}"
    if len(hosts) > 1 and hosts[1] != nxt:
        p.error(f"the suite looks for the second router on the next port only: {nxt}")
    if not a.list:
        if not reachable(hosts[0]):
            print(f"nothing listens on {hosts[0]}", file=sys.stderr)
            return 2
        if nxt not in hosts and reachable(nxt):
            hosts.append(nxt)
    py, run = prepare(cache, a.version)

    folder = "test/asynchronous/" if a.aio else "test/"
    fix = (lambda s: s.replace("test/", folder, 1) if a.aio and not s.startswith("test/asynchronous/") else s)

    def pats(table):
        """Patterns for this side of the suite; the asyncio mirror calls some classes AsyncTest.. instead of Test.."""
        out = [fix(s) for s in table]
        return out + ([s.replace("::Test", "::AsyncTest", 1) for s in out if "::Test" in s] if a.aio else [])

    select, other = [], []
    if a.only:
        select = list(a.only)
    elif a.select == "smoke":
        select = pats(r[0] for r in rows(HERE / "smoke.tsv"))
    elif a.select == "full":
        groups = rows(HERE / "groups.tsv")  # group, pattern, note
        take = [r for r in groups if (r[0] in a.group if a.group else r[0] not in NO_ROUTER)]
        select = pats(r[1] for r in take)
        # a pattern of another group that lies inside one of these belongs to that other group
        other = pats(r[1] for r in groups if r not in take and any(r[1].startswith(t[1]) for t in take))
        if not select:
            p.error("no group matches; groups: " + ", ".join(sorted({r[0] for r in groups})))
    elif a.select != "all":
        select = pats(r[0] for r in rows(Path(a.select)))
    drop = list(other)
    if not a.no_default_deselect:
        drop += pats(r[0] for r in rows(HERE / "deselect.tsv"))
    for f in a.deselect:
        drop += pats(r[0] for r in rows(f))

    def wanted(f):
        if any(fnmatch.fnmatchcase(f, d) for d in drop):
            return False
        return not select or any(s.startswith(f) or f.startswith(s) or fnmatch.fnmatchcase(f, s.split("::")[0])
                                 for s in select)
    files = [f for f in sorted(str(f.relative_to(run)) for f in (run / folder).glob("test_*.py")) if wanted(f)]
    if a.list:
        print("\n".join(files))
        return 0

    out = a.out.resolve()
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text("")
    work = cache / f"work-{os.getpid()}"
    work.mkdir()
    env = dict(os.environ, DB_IP=host, DB_PORT=port, SUITE_OUT=str(out), SUITE_HOSTS=",".join(hosts),
               PYTHONPATH=str(HERE), PYTHONDONTWRITEBYTECODE="1",
               PYMONGO_MUST_CONNECT="1")  # no server: fail, never skip
    for k in ("COMPRESSORS", "MONGODB_API_VERSION", "DB_USER", "DB_PASSWORD", "SINGLE_MONGOS_LB_URI"):
        env.pop(k, None)
    if a.compressors:
        env["COMPRESSORS"] = a.compressors
    if a.api_version:
        env["MONGODB_API_VERSION"] = a.api_version
    env.update(kv.split("=", 1) for kv in a.env)
    for name, lines in (("SUITE_SELECT", select), ("SUITE_DESELECT", drop)):
        if lines:
            (work / name).write_text("\n".join(lines) + "\n")
            env[name] = str(work / name)
    t0 = time.time()
    try:
        for f in files:
            t1 = time.time()
            run_file(f, py, run, env, out, work, a)
            n = Counter(v[0] for k, v in load(out).items() if k.startswith(f + "::"))
            print(f"{f}: " + ", ".join(f"{n[o]} {o}" for o in OUTCOMES) + f", {time.time() - t1:.0f} s",
                  file=sys.stderr, flush=True)
    finally:
        if (work / "log").exists():
            shutil.copy(work / "log", out.with_suffix(".log"))
        shutil.rmtree(work, ignore_errors=True)
    res = load(out)
    out.write_text("".join(f"{k}\t" + "\t".join(v) + "\n" for k, v in sorted(res.items())), encoding="utf8")
    excepted = {r[0]: r[1] for r in rows(HERE / "exceptions.tsv")}
    for k in sorted(excepted.keys() & res.keys()):
        how = "fails as expected" if res[k][0] == "failed" else f"{res[k][0]}, though exceptions.tsv names it"
        print(f"{how}: {k} ({excepted[k]})", file=sys.stderr)
    n = Counter(v[0] for v in res.values())
    failed = [k for k, v in res.items() if v[0] == "failed" and k not in excepted]
    ran = {k.replace("::AsyncTest", "::Test", 1) for k in res}
    lost = sorted({s.replace("::AsyncTest", "::Test", 1) for s in select}) if a.only or a.select == "smoke" else []
    lost = [s for s in lost if not any(k.startswith(s) or fnmatch.fnmatchcase(k, s) for k in ran)]
    for s in lost:
        print(f"no test ran for {s}", file=sys.stderr)
    print("total: " + ", ".join(f"{n[o]} {o}" for o in OUTCOMES)
          + f", {len(res)} tests, {len(files)} files, {time.time() - t0:.0f} s ({out.name})")
    if a.known:
        old = load(a.known)
        worse = sorted(k for k, v in res.items() if v[0] == "failed" and old.get(k, [""])[0] == "passed")
        for k in worse:
            print(f"passed before, fails now: {k}\t{res[k][2]}")
        return 1 if worse else 0
    return 1 if failed or lost or not n["passed"] else 0


if __name__ == "__main__":
    sys.exit(main())
