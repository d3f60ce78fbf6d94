"""Real vLLM engines in processes of their own, driven from a test.

The parent imports vLLM once and forks a child for each engine: an import costs more than an engine of this size. So the
parent must never run a thread, a client or a model.
"""

import contextlib
import multiprocessing
import os
import pathlib
import sys
import time
import traceback

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = ROOT / "build/engines"
MODELS = BUILD / "models"
LOGS = BUILD / "logs"
ENVIRONMENT = {
    "PYTHONHASHSEED": "0",
    "HF_HUB_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
    "TORCH_COMPILE_DISABLE": "1",  # else the first step compiles for 17 s
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",  # scheduler and worker in the child itself
    "OMP_NUM_THREADS": "1",
    "OMP_WAIT_POLICY": "passive",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "VLLM_LOGGING_LEVEL": "INFO",
}
START_S, CALL_S = 300, 240  # bounds of a hang; a start takes 5 s on an idle machine

_fork = multiprocessing.get_context("fork")


def import_once(**environment):
    """Everything that a child would import. torch reads the environment when it is imported: were it there before, with
    threads of OpenMP in the parent, each child would wait for ever for threads that a fork does not bring along."""
    assert "torch" not in sys.modules, "torch was imported before import_once() said how"
    os.environ.update(ENVIRONMENT)
    os.environ.update(environment)
    import vllm
    import vllm.model_executor.models.llama
    import vllm.platforms
    import vllm.v1.worker.cpu_worker

    return vllm.LLM, vllm.platforms.current_platform


def transfer_config(endpoints, role="kv_both", policy="recompute", **extra):
    return {
        "kv_connector": "LarderConnector",
        "kv_connector_module_path": "larder_kv.vllm",
        "kv_role": role,
        "kv_load_failure_policy": policy,
        "kv_connector_extra_config": {"endpoints": endpoints, **extra},
    }


class Child:
    """What runs inside: an LLM and the commands on it."""

    def __init__(self, options):
        from vllm import LLM

        defaults = {
            "skip_tokenizer_init": True,
            "dtype": "float32",
            "enforce_eager": True,
            "max_model_len": 1024,
            "max_num_seqs": 4,
            "block_size": 32,
            "enable_prefix_caching": False,
            "seed": 0,
            "kv_cache_memory_bytes": 32 << 20,
            "disable_log_stats": False,
        }
        self.llm = LLM(**{**defaults, **options})

    def generate(self, prompts, max_tokens=8, salt=None, lora=None, params=None):
        """For each prompt (tokens, cached tokens), and the seconds that all took."""
        from vllm import SamplingParams
        from vllm.lora.request import LoRARequest

        inputs = [{"prompt_token_ids": prompt, **({"cache_salt": salt} if salt else {})} for prompt in prompts]
        sampling = SamplingParams(
            temperature=0,
            max_tokens=max_tokens,
            detokenize=False,
            ignore_eos=True,
            extra_args={"kv_transfer_params": params} if params else None,
        )
        begin = time.perf_counter()
        outputs = self.llm.generate(inputs, sampling, use_tqdm=False, lora_request=LoRARequest(*lora) if lora else None)
        took = time.perf_counter() - begin
        return [(list(each.outputs[0].token_ids), each.num_cached_tokens) for each in outputs], took

    def reset(self, external=True):
        return self.llm.reset_prefix_cache(reset_connector=external)

    def settle(self):
        """Until every store has ended: the engine itself only looks when it steps."""
        from vllm.distributed.kv_transfer import get_kv_transfer_group, has_kv_transfer_group

        half = getattr(get_kv_transfer_group(), "_half", None) if has_kv_transfer_group() else None
        end = time.monotonic() + 30
        while getattr(half, "_stores", None) and time.monotonic() < end:
            half._poll(20)

    def counters(self):
        """Sums of everything that the worker's half has counted, read past the engine's own statistics."""
        import recorder

        return dict(recorder.TOTALS)

    def hook(self, name, *arguments):
        import recorder

        return getattr(recorder, name)(*arguments)

    def close(self):
        self.llm.llm_engine.engine_core.shutdown()


def _serve(pipe, options, environment, log):
    with open(log, "ab", buffering=0) as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    os.environ.update(environment)
    try:
        import recorder

        if os.environ["LARDER_TEST_RECORDS"]:
            recorder.install()
        child = Child(options)
        pipe.send(("ready", None))
        while True:
            name, arguments, named = pipe.recv()
            try:
                pipe.send(("ok", getattr(child, name)(*arguments, **named)))
            except Exception as error:
                traceback.print_exc()
                pipe.send(("error", f"{type(error).__name__}: {error}"))
            if name == "close":
                break
    except EOFError:
        pass
    except BaseException as error:
        traceback.print_exc()
        with contextlib.suppress(OSError):
            pipe.send(("error", f"{type(error).__name__}: {error}"))
    finally:
        os._exit(0)


class Engine:
    """An engine in a child; calls are Child's. `begin`/`end` split a call so that a test can act in between."""

    def __init__(self, name, model, config=None, environment=None, record=True, **options):
        LOGS.mkdir(parents=True, exist_ok=True)
        self.log = LOGS / f"{name}.log"
        self.log.unlink(missing_ok=True)
        self._pipe, theirs = _fork.Pipe()
        options = {"model": str(MODELS / model), **options}
        if config is not None:
            options["kv_transfer_config"] = config
        records = LOGS / f"{name}.records"
        records.unlink(missing_ok=True)
        self.records = records
        self._process = _fork.Process(
            target=_serve,
            args=(
                theirs,
                options,
                {**ENVIRONMENT, "LARDER_TEST_RECORDS": str(records) if record else "", **(environment or {})},
                str(self.log),
            ),
        )
        self._process.start()
        theirs.close()
        self._closed = False
        self._ready = False

    @property
    def pid(self):
        return self._process.pid

    def ready(self):
        """Waits for the start, so that several engines can start side by side."""
        if not self._ready:
            self._ready = True
            self.end(START_S)
        return self

    def begin(self, name, *arguments, **named):
        self.ready()
        self._pipe.send((name, arguments, named))

    def end(self, within_s=CALL_S):
        if not self._pipe.poll(within_s):
            raise AssertionError(f"no answer within {within_s} s; see {self.log}")
        try:
            state, value = self._pipe.recv()
        except EOFError:
            raise AssertionError(f"the engine died; see {self.log}") from None
        if state == "error":
            raise AssertionError(f"{value}; see {self.log}")
        return value

    def call(self, name, *arguments, **named):
        self.begin(name, *arguments, **named)
        return self.end()

    def generate(self, prompts, **named):
        outputs, _ = self.call("generate", prompts, **named)
        return outputs

    def text(self):
        return self.log.read_text(errors="replace")

    def close(self):
        if self._closed:
            return
        self._closed = True
        try:
            if self._process.is_alive() and self._ready:
                self._pipe.send(("close", (), {}))
                self._pipe.poll(60)
        except OSError:
            pass
        self._process.join(10)
        if self._process.is_alive():
            self._process.kill()
            self._process.join(10)
