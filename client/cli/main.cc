// larderctl: looks at a Larder cluster, and into it.
#include <CLI/CLI.hpp>
#include <cstdio>

#include "client/cli/command.h"
#include "proto/units.h"

namespace larder::cli {

namespace {

void AddGlobals(CLI::App* app, Globals* globals) {
  app->add_option("-e,--endpoints", globals->endpoints,
                  "data addresses of any nodes (default 127.0.0.1:7400)")
      ->delimiter(',')
      ->envname("LARDER_ENDPOINTS");
  app->add_option("--control", globals->control, "control addresses, when no data address answers")
      ->delimiter(',')
      ->envname("LARDER_CONTROL");
  app->add_option("--token", globals->token, "credential")->envname("LARDER_TOKEN");
  app->add_option("--transport", globals->transport, "auto, tcp, shm or ucx")
      ->envname("LARDER_TRANSPORT")
      ->check(CLI::IsMember({"auto", "tcp", "shm", "ucx"}))
      ->capture_default_str();
  app->add_option("--replicas", globals->replicas,
                  "copies that put makes and get looks for, as the engines have it")
      ->envname("LARDER_CLIENT_REPLICAS")
      ->check(CLI::Range(1, 4))
      ->capture_default_str();
  app->add_option("--timeout", globals->timeout, "for each question to a node")->capture_default_str();
  app->add_option("-o,--output", globals->output, "text or json")
      ->check(CLI::IsMember({"text", "json"}))
      ->capture_default_str();
  app->add_flag("--json", globals->json_flag, "the same as -o json");
}

int Main(int argc, char** argv) {
  CLI::App app(
      "larderctl: looks at a Larder cluster, and into it.\n"
      "Exit codes: 0 well, 1 a finding, a miss or a node that fails, 2 wrong usage.");
  app.set_version_flag("--version", "larderctl " LARDER_VERSION);
  app.require_subcommand(1);
  app.fallthrough();
  Globals globals;
  Run run;
  AddGlobals(&app, &globals);
  AddStatus(&app, &run);
  AddTop(&app, &run);
  AddDoctor(&app, &run);
  AddNamespaces(&app, &run);
  AddQuarantine(&app, &run);
  AddDrain(&app, &run);
  AddEvents(&app, &run);
  AddBlocks(&app, &run);
  AddSizing(&app, &run);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);  // --help, --version
    std::fprintf(stderr, "larderctl: %s (larderctl --help, or larderctl COMMAND --help)\n", error.what());
    return kExitUsage;
  }
  const Result<uint64_t> timeout = ParseDurationUs(globals.timeout);
  if (!timeout.ok()) return Fail(Invalid("--timeout: " + timeout.status().text()), kExitUsage);
  globals.timeout_us = timeout.value();
  return run(globals);
}

}  // namespace
}  // namespace larder::cli

int main(int argc, char** argv) {
  try {
    return larder::cli::Main(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "larderctl: %s\n", error.what());
    return larder::cli::kExitFailed;
  }
}
