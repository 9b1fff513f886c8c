"""Messages of NCCL, CUDA, the driver and the kernel whose meaning is known: one table, matched without case."""

import re
from typing import TYPE_CHECKING, NamedTuple

from traceanalyzer.doctor.case import Case, Diagnosis, of
from traceanalyzer.meaning.vocabulary import Severity, first_upper, numbered

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from traceanalyzer.doctor.nccl_log import NcclLog, Process


class Known(NamedTuple):
    """One kind of message.

    Attributes:
        severity: `high` for what ends a job, `medium` for what follows from another rank's failure.
        pattern: in a line that NCCL marks as a warning, or in any other line; its named groups fill the headline.
        headline: `{settings}` becomes the interface or the variables that it depends on.
        why: what it means.
        fix: what to do.
        settings: variables of NCCL that change it.
    """

    severity: Severity
    pattern: str
    headline: str
    why: str
    fix: str
    settings: tuple[str, ...] = ()


_NETWORK = "Check that every host reaches that address over that interface (`ping`, firewall), and set {settings}."
_FABRIC = "systemctl status nvidia-fabricmanager"

KNOWN = (
    Known("high", r"failed to extend /\S*shm|(?:creating|create) shared memory (?:segment|file)|posix_fallocate failed"
          r"|shm_open failed",
          "Shared memory (/dev/shm) is too small for NCCL", "NCCL cannot make its buffers in /dev/shm; init fails.",
          "Give the container more: `docker run --shm-size=16g` or `--ipc=host`; in Kubernetes mount an `emptyDir` "
          "with `medium: Memory` at /dev/shm. `df -h /dev/shm` shows what is free."),
    Known("high", r"attaching to shared memory segment",
          "NCCL cannot attach to another rank's shared memory (/dev/shm)",
          "The segment that a rank of this host made is not visible here: separate containers, or it was removed.",
          "Run the ranks of a host in one container, or share /dev/shm among them: `--ipc=host` (or one IPC namespace) "
          "and a large `--shm-size`."),
    Known("high", r"Got completion (?:from peer (?P<peer>\S+) )?with (?:error |status=)(?:\w+\()?(?P<status>\d+)"
          r"(?:.*?\blocalGid +(?P<gid>\S+))?(?:.*\bhca (?P<hca>\w+))?",
          "InfiniBand/RoCE transfer failed: {status}",
          "Status 12 is no answer after all retries; status 5 is flushed and follows from an earlier failure.",
          "Check that port and its switch (`ibstat`, `perfquery`, `ibdiagnet`), and whether the peer's process died. "
          "On RoCE check the GIDs (`show_gids`, {settings}) and flow control (PFC, ECN).",
          ("NCCL_IB_GID_INDEX", "NCCL_IB_HCA", "NCCL_IB_TIMEOUT")),
    Known("high", r"(?:got async|async fatal) (?:fatal )?event.*?: (?P<why>[^\n]+)", "Network card reports: {why}",
          "The driver of the InfiniBand or RoCE card reported an event.",
          "Check the link (`ibstat`, `dmesg`), its cable and switch port."),
    Known("high", r"(?P<call>ibv_\w+) failed(?: with)?(?: error)? ?(?P<why>[^,\n]*)", "{call} failed: {why}",
          "The card or its driver refused the call.",
          "For memory: `ulimit -l unlimited` in the container. For a timeout of ibv_modify_qp: check the route and the "
          "GID index of RoCE ({settings}).", ("NCCL_IB_GID_INDEX", "NCCL_IB_HCA")),
    Known("medium", r"connect to (?P<peer>\S+<\d+>) (?:failed|returned)[^\n]*retrying",
          "NCCL retries a connection to {peer}", "The peer does not listen yet.", _NETWORK, ("NCCL_SOCKET_IFNAME",)),
    Known("high", r"connect to (?P<peer>\S+<\d+>) (?:failed|returned) ?:? ?(?P<why>[^\n]+)",
          "NCCL cannot reach {peer} {settings}: {why}",
          "The interface is the wrong one, or the peer's address cannot be reached over it.", _NETWORK,
          ("NCCL_SOCKET_IFNAME",)),
    Known("high", r"no (?:usable )?(?:socket )?interface found",
          "NCCL finds no network interface {settings}", "No interface matches, or none is up.",
          "Set NCCL_SOCKET_IFNAME to an interface that `ip addr` lists on every host.", ("NCCL_SOCKET_IFNAME",)),
    Known("high", r"P2P is disabled between NVLINK connected GPUs (?P<pair>\d+ and \d+)",
          "P2P is disabled between NVLink-connected GPUs {pair}",
          "NVLink is there, but the driver refuses P2P: a fault.",
          f"Check `nvidia-smi nvlink -s`, `nvidia-smi topo -p2p n`, `{_FABRIC}` and `dmesg | grep Xid`."),
    Known("high", r"NVLink SHARP|nvls\.cc.*cuda failure", "NVLink SHARP (NVLS) cannot be set up",
          "The fabric manager or an NVSwitch is misconfigured, or GPU memory is full.",
          f"Check `{_FABRIC}`; to test, run once with NCCL_NVLS_ENABLE=0."),
    Known("high", r"cuda failure (?:\d+ )?'?(?P<why>[^'\n]+)", "A CUDA call of NCCL failed: {why}",
          "The first such rank is where to look.",
          "Look for the first error of that rank: out of memory, a faulty GPU (`dmesg | grep Xid`), hidden devices."),
    Known("high", r"duplicate gpu detected", "Two ranks use the same GPU", "Each rank needs a GPU of its own.",
          "Call `torch.cuda.set_device(int(os.environ['LOCAL_RANK']))` before the first collective."),
    Known("high", r"mismatched collective|mismatch in rank count|has already checked in|message truncated *:",
          "Ranks disagree about a collective or about the job's size", "They call different ones, or have other sizes.",
          "Compare the ranks' calls: flight-recorder dumps (--flight-recorder) name the first that differs."),
    Known("high", r"ranks? (?P<ranks>\d[\d, ]*) failed to pass monitoredBarrier",
          "Rank {ranks} did not reach the monitored barrier", "The other ranks wait there.",
          "Look at the log and the stack (`py-spy dump`) of that rank."),
    Known("high", r"timed out after \d+ seconds waiting for clients\. (?P<joined>\d+/\d+) clients joined",
          "Only {joined} ranks joined the job", "The others never reached the rendezvous address.",
          "Start all of them, and check MASTER_ADDR, MASTER_PORT and the firewall."),
    Known("high", r"cuda out of memory|torch\.OutOfMemoryError|hip out of memory",
          "{who} ran out of GPU memory", "It raised OutOfMemoryError; the other ranks then wait for it.",
          "Use a smaller micro-batch or activation checkpointing; `torch.cuda.memory._record_memory_history()` shows "
          "what holds memory."),
    Known("high", r"cuda error: (?P<why>[^\n.;]{1,99})", "{who} got a CUDA error: {why}",
          "The rank is lost; the other ranks then wait for it.",
          "Run that rank with CUDA_LAUNCH_BLOCKING=1, or under compute-sanitizer; for ECC errors replace the GPU."),
    Known("high", r"xid \((?P<gpu>[^)]+)\):? (?P<xid>\d+)", "The driver reports Xid {xid} on {gpu}",
          "Xid 79: the GPU fell off the bus. 48, 63, 64, 94, 95: memory errors. 74: NVLink. 13, 31: the program.",
          "Look it up in NVIDIA's Xid catalog; drain the host for hardware errors."),
    Known("high", r"unable to determine the device handle|gpu is lost|fallen off the bus|gpu requires reset",
          "A GPU is lost", "The driver cannot reach it.", "Drain the host; reset or replace the GPU."),
    Known("high", r"oom[-_ ]kill|out of memory: killed process|oomkilled",
          "The kernel killed a process: out of host memory", "Its rank is gone; the other ranks then wait for it.",
          "Raise the memory limit, or lower DataLoader workers and prefetching."),
    Known("medium", r"missing \"iommu=pt\"", "The kernel runs without iommu=pt",
          "Peer traffic then passes the IOMMU, and can hang.", "Add `iommu=pt` to the kernel's command line."),
    Known("medium", r"closed by remote peer|(?:from|to) \S+<\d+> failed|remote process exited",
          "Another rank closed its connection", "That rank failed before this one.",
          "Look at the rank that stops first; its own log has the cause."),
    Known("medium", r"\[(?:proxy )?service[^\]]*\].*(?:fail|could not|error)|proxy call to rank|while polling for opId",
          "NCCL's proxy thread lost another rank", "It follows from that rank's failure.",
          "Look at the rank that stops first."),
    Known("low", r"failed to IPC register userbuff", "NCCL could not register a user buffer",
          "Harmless: NCCL copies it (2.26 and later no longer warn).", "Nothing; look for another cause."),
    Known("medium", r"nccl(?P<error>System|UnhandledCuda|Internal|Remote)Error",
          "NCCL failed with nccl{error}Error", "No output of NCCL says why.",
          "Run with NCCL_DEBUG=WARN: it prints the failing call."),
)  # fmt: skip
"""Causes first: of one line the first that matches counts."""

_STEMS = ("fail", "error", "event", "shm", "shared memory", "completion", "interface", "disabled", "sharp", "duplicate",
          "mismatch", "checked in", "truncated", "joined", "memory", "xid", "handle", "lost", "fallen", "reset", "oom",
          "iommu", "closed", "exited", "proxy", "opid")  # fmt: skip
"""Parts of which each message has one: nearly all lines have none, and patterns take time."""

_COMPILED = [re.compile(known.pattern, re.IGNORECASE) for known in KNOWN]


def known_error(text: str) -> tuple[int, re.Match[str]] | None:
    """Which of `KNOWN` a line is, with what its pattern found; `None` for all others."""
    lowered = text.lower()
    if not any(stem in lowered for stem in _STEMS):
        return None
    return next(((number, match) for number, one in enumerate(_COMPILED) if (match := one.search(text))), None)


_IB_STATUS = {4: "local protection error", 5: "flushed", 9: "invalid request", 10: "remote access error",
              11: "remote operation error", 12: "retry exceeded", 13: "receiver not ready"}  # fmt: skip
"""`ibv_wc_status` of libibverbs."""


def warnings(case: Case) -> list[Diagnosis]:
    """What was warned of: each known kind with its meaning, then all the rest together."""
    made = []
    for log in case.logs:
        by_kind: dict[int, list[tuple[re.Match[str], str, Sequence[Process]]]] = {}
        rest = {}
        for text, who in log.warnings.items():
            found = known_error(text)
            if found is None:
                rest[text] = who
            else:
                by_kind.setdefault(found[0], []).append((found[1], text, who))
        made += [_known(KNOWN[number], own, log, of(log, case)) for number, own in sorted(by_kind.items())]
        if rest:
            first = max(rest, key=lambda text: len(rest[text]))
            made.append(
                Diagnosis(
                    severity="medium",
                    diagnosis=f"NCCL warns{of(log, case)}: {first[:200]}",
                    signal=f"{sum(map(len, rest.values()))} warnings of {len(rest)} kinds: {_shown(rest.items())}.",
                    recommendation="Read the first warning of the rank that fails first: later ones follow from it.",
                    ranks=tuple(log.ranks_of(process for who in rest.values() for process in who)),
                )
            )
    return made


def _known(
    known: Known, found: "Sequence[tuple[re.Match[str], str, Sequence[Process]]]", log: "NcclLog", where: str
) -> Diagnosis:
    facts = {name: list(dict.fromkeys(told.strip() for match, _, _ in found if (told := match[name])))
             for name in found[0][0].re.groupindex}  # fmt: skip
    codes = list(map(int, facts.get("status", ())))
    facts |= {"status": [f"{_IB_STATUS.get(code, 'status')} ({code})" for code in codes]} if codes else {}
    told = {name: " and ".join(values[:3]) for name, values in facts.items()}
    values = [f"{name}={value}" for name in known.settings if (value := log.set_to(name)) is not None]
    interfaces = sorted(set(log.interfaces.values()))
    through = f"through {' or '.join(interfaces)} " if interfaces else ""
    setting = through + (f"({', '.join(values)})" if values else "")
    who = [process for _, _, own in found for process in own]
    ranks = {number for host, number in who if not host and number >= 0} | set(log.ranks_of(who))
    named = first_upper(numbered("rank", ranks)) if ranks else "A rank"
    headline = " ".join(known.headline.format(**told, settings=setting, who=named).split()).replace(" :", ":")
    place = ", ".join(
        f"{name} {told[name]}" for name in ("peer", "hca", "gid") if told.get(name) and told[name] not in headline
    )
    return Diagnosis(
        severity="medium" if codes and set(codes) <= {5} else known.severity,
        diagnosis=f"{headline.strip(': ')}{where}.",
        signal=f"{known.why} {f'At {place}. ' if place else ''}{len(who)} ×: "
        f"{_shown([(text, own) for _, text, own in found])}.",
        recommendation=known.fix.format(settings=", ".join(known.settings)) if known.settings else known.fix,
        ranks=tuple(sorted(ranks)),
    )


def _shown(texts: "Iterable[tuple[str, Sequence[Process]]]") -> str:
    return "; ".join(f"'{text[:160]}' ({len(who)} ×)" for text, who in list(texts)[:3])
