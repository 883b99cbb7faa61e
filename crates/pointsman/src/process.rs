//! From options to exit code: start, serve, drain.

use std::ffi::OsString;
use std::io::Write;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicI64;
use std::time::Duration;

use router::local::log_book::LogBook;
use router::{Router, Settings, StartError};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::control::Control;
use crate::drain::Drain;
use crate::listen::{Gate, Listeners};
use crate::log::{self, LogWriter};
use crate::options::command_line::{self, Asked};
use crate::options::config::Config;
use crate::pid_file::PidFile;
use crate::signals::{self, Endings};

/// mongos's exit codes.
const BAD_OPTIONS: u8 = 2;
const SHARDING_ERROR: u8 = 5;
const NET_ERROR: u8 = 48;
const UNCAUGHT: u8 = 100;

/// In-flight commands may take this long after the last client was told to leave.
const DRAIN_LIMIT: Duration = Duration::from_secs(15);

/// Runs the process.
pub(crate) fn run(arguments: Vec<OsString>) -> ExitCode {
    let argv = arguments.iter().map(|argument| argument.to_string_lossy().into_owned()).collect();
    let options = match command_line::read(arguments) {
        Asked::Run(options) => *options,
        Asked::Print(text, 0) => {
            let _ = std::io::stdout().write_all(text.as_bytes());
            return ExitCode::SUCCESS;
        }
        Asked::Print(text, code) => return complain(&text, code),
    };
    let config = match Config::new(options) {
        Ok(config) => config,
        Err(complaints) => {
            let mut text = complaints.join("\n");
            text.push_str("\ntry 'pointsman --help' for more information\n");
            return complain(&text, BAD_OPTIONS);
        }
    };
    let book = Arc::new(LogBook::default());
    let log = match log::start(&config.log, Arc::clone(&book)) {
        Ok(log) => log,
        Err(error) => return complain(&format!("cannot open the log: {error}\n"), BAD_OPTIONS),
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().thread_name("worker").build();
    let code = match runtime {
        Ok(runtime) => {
            let code = runtime.block_on(serve(config, argv, book, &log));
            // A name that is being looked up must not hold up the end.
            runtime.shutdown_background();
            code
        }
        Err(error) => {
            tracing::error!(%error, "cannot start the runtime");
            UNCAUGHT
        }
    };
    tracing::info!(c = "CONTROL", id = 23138, exitCode = code, "Shutting down");
    log.flush();
    ExitCode::from(code)
}

fn complain(text: &str, code: u8) -> ExitCode {
    let _ = std::io::stderr().write_all(text.as_bytes());
    ExitCode::from(code)
}

async fn serve(config: Config, argv: Vec<String>, book: Arc<LogBook>, log: &LogWriter) -> u8 {
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    tracing::info!(
        c = "CONTROL", id = 4_615_611, ctx = "main", pid = std::process::id(), port = config.listen.port,
        host = %host, version = env!("CARGO_PKG_VERSION"), "Pointsman starting"
    );
    warn_of(&config);
    let mut endings = match (Endings::new(), signals::rotate_on_signal(log.clone())) {
        (Ok(endings), Ok(())) => endings,
        (Err(error), _) | (_, Err(error)) => {
            tracing::error!(ctx = "main", %error, "cannot listen to signals");
            return UNCAUGHT;
        }
    };
    let _pid_file = match config.pid_file.as_deref().map(PidFile::write).transpose() {
        Ok(file) => file,
        Err(error) => {
            tracing::error!(c = "CONTROL", id = 23329, ctx = "main", %error, "cannot write the pid file");
            return BAD_OPTIONS;
        }
    };
    let shutdown = CancellationToken::new();
    let (control, mut orders) = Control::new(log.clone());
    let settings = Settings {
        config_servers: config.config_servers,
        host: format!("{host}:{}", config.listen.port),
        argv,
        parsed_options: config.parsed,
        compressors: config.compressors,
        local_threshold: config.local_threshold,
        log: book,
        process: Arc::new(control),
    };
    let router = match Router::new(settings, config.parameters, shutdown.clone()) {
        Ok(router) => router,
        Err(error) => {
            tracing::error!(c = "SHARDING", ctx = "main", %error, "the config servers' names are not valid");
            return BAD_OPTIONS;
        }
    };
    router.stats().allow_connections(config.listen.max_connections);
    router.slow_log().set_threshold_ms(config.slow_ms);
    router.slow_log().set_sample_rate(config.slow_sample_rate);
    tokio::select! {
        connected = router.connect() => match connected {
            Ok(()) => {}
            Err(StartError::Interrupted) => return 0,
            Err(error) => {
                tracing::error!(c = "SHARDING", id = 22868, ctx = "main", %error, "Error initializing sharding state");
                return SHARDING_ERROR;
            }
        },
        name = endings.next() => {
            tracing::info!(c = "CONTROL", id = 23377, ctx = "signal", signal = name, "Received signal");
            return 0;
        }
    }
    let listeners = match Listeners::open(&config.listen).await {
        Ok(listeners) => listeners,
        Err(error) => {
            tracing::error!(c = "CONTROL", id = 20568, ctx = "main", %error, "Error setting up listener");
            return NET_ERROR;
        }
    };
    let gate = Gate {
        router: Arc::clone(&router),
        drain: Arc::new(Drain::default()),
        closed: CancellationToken::new(),
        clients: TaskTracker::new(),
        next_id: Arc::new(AtomicI64::new(1)),
    };
    let accepting = tokio::spawn(listeners.run(gate.clone()));
    tracing::info!(
        c = "NETWORK",
        id = 23016,
        ctx = "listener",
        port = config.listen.port,
        ssl = "off",
        "Waiting for connections"
    );
    let quiesce = tokio::select! {
        name = endings.next() => {
            tracing::info!(c = "CONTROL", id = 23377, ctx = "signal", signal = name, "Received signal");
            gate.router.parameters().millis("mongosShutdownTimeoutMillisForSignaledShutdown")
        }
        Some(quiesce) = orders.recv() => quiesce,
    };
    tokio::select! {
        () = end(&gate, quiesce) => {}
        name = endings.next() => {
            tracing::warn!(
                c = "CONTROL", id = 23377, ctx = "signal", signal = name, clients = gate.clients.len(),
                "Received another signal: ending at once"
            );
        }
    }
    accepting.abort();
    0
}

/// Quiesce, then drain. In the first part everything works but hello, which tells clients to leave; it is over as soon
/// as they have.
async fn end(gate: &Gate, limit: Duration) {
    tracing::info!(
        c = "CONTROL",
        id = 4_695_701,
        ctx = "signal",
        quiesceMillis = u64::try_from(limit.as_millis()).unwrap_or(0),
        "Entering quiesce mode for mongos shutdown"
    );
    gate.router.quiesce().begin(limit);
    gate.clients.close();
    let _ = tokio::time::timeout(limit, gate.clients.wait()).await;
    gate.closed.cancel();
    gate.drain.begin();
    if tokio::time::timeout(DRAIN_LIMIT, gate.clients.wait()).await.is_err() {
        tracing::warn!(
            c = "CONTROL",
            ctx = "signal",
            clients = gate.clients.len(),
            "Commands still ran at the end"
        );
    }
    // Left open, they would block other writers until the shards' own limit.
    let aborted = gate.router.abort_all_transactions();
    if tokio::time::timeout(DRAIN_LIMIT, aborted).await.is_err() {
        tracing::warn!(c = "CONTROL", ctx = "signal", "Not all open transactions were aborted");
    }
    gate.router.servers().topology().shutdown().await;
}

/// What an operator should know and cannot see.
fn warn_of(config: &Config) {
    tracing::warn!(
        c = "CONTROL",
        id = 22120,
        ctx = "main",
        start_warning = true,
        "Access control is not enabled for the database. Read and write access to data and configuration is \
         unrestricted"
    );
    for name in &config.without_effect {
        tracing::warn!(
            c = "CONTROL",
            ctx = "main",
            start_warning = true,
            option = %name,
            "This option has no effect"
        );
    }
    let hosts = config.config_servers.split(',').count();
    if hosts < 3 {
        tracing::warn!(
            c = "SHARDING",
            id = 24132,
            ctx = "main",
            start_warning = true,
            configServers = hosts,
            "Running a sharded cluster with fewer than 3 config servers should only be done for testing purposes and \
             is not recommended for production"
        );
    }
    if tikv_jemalloc_ctl::background_thread::read().is_ok_and(|on| !on) {
        tracing::warn!(
            c = "CONTROL",
            ctx = "main",
            "Built without the allocator's background thread: memory of a burst is kept"
        );
    }
}
