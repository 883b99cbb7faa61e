//! The server parameters, one row each. Values and flags as a 6.0.5 server shows them.

use super::Value;

/// When a parameter can be set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Settable {
    /// Never: it tells something.
    Never,
    /// With `--setParameter` only.
    Startup,
    /// By the command only.
    Runtime,
    /// Both.
    Always,
}

impl Settable {
    /// `settableAtStartup`
    #[must_use]
    pub const fn at_startup(self) -> bool {
        matches!(self, Self::Startup | Self::Always)
    }

    /// `settableAtRuntime`
    #[must_use]
    pub const fn at_runtime(self) -> bool {
        matches!(self, Self::Runtime | Self::Always)
    }
}

/// One parameter.
#[derive(Debug)]
pub struct Parameter {
    /// Its name.
    pub name: &'static str,
    /// Its value when nobody says another; its type too.
    pub default: Value<'static>,
    /// When it can be set.
    pub settable: Settable,
    /// Does this router act on it? If not, another value than the default is warned of at start.
    pub acts: bool,
}

const fn row(name: &'static str, default: Value<'static>, settable: Settable, acts: bool) -> Parameter {
    Parameter { name, default, settable, acts }
}

/// It works.
const ACTS: bool = true;
/// It is taken so that a mongos's configuration file works, and changes nothing here.
const TAKEN: bool = false;

use Settable::{Always, Never, Runtime, Startup};
use Value::{Bool, Int, Text, Texts};

/// In the order of the answer to `getParameter: "*"`.
pub const ROWS: &[Parameter] = &[
    row("KeysRotationIntervalSec", Int(7_776_000), Startup, TAKEN),
    row("ShardingTaskExecutorPoolHostTimeoutMS", Int(300_000), Startup, ACTS),
    row("ShardingTaskExecutorPoolMaxConnecting", Int(2), Startup, ACTS),
    row("ShardingTaskExecutorPoolMaxSize", Int(32_767), Startup, ACTS),
    row("ShardingTaskExecutorPoolMinSize", Int(1), Startup, ACTS),
    row("ShardingTaskExecutorPoolRefreshRequirementMS", Int(60_000), Startup, ACTS),
    row("ShardingTaskExecutorPoolRefreshTimeoutMS", Int(20_000), Startup, ACTS),
    row("ShardingTaskExecutorPoolReplicaSetMatching", Text("automatic"), Startup, TAKEN),
    row("authSchemaVersion", Int(5), Never, TAKEN),
    row("authenticationMechanisms", Texts(&[]), Never, ACTS),
    row("clientCursorMonitorFrequencySecs", Int(4), Startup, ACTS),
    row("clusterAuthMode", Text("undefined"), Never, ACTS),
    row("cursorTimeoutMillis", Int(600_000), Always, ACTS),
    row("diagnosticDataCollectionEnabled", Bool(false), Startup, TAKEN),
    row("disableLogicalSessionCacheRefresh", Bool(false), Startup, ACTS),
    row("enableFinerGrainedCatalogCacheRefresh", Bool(true), Startup, TAKEN),
    row("enableLocalhostAuthBypass", Bool(true), Startup, TAKEN),
    row("enableTestCommands", Bool(false), Startup, ACTS),
    row("findChunksOnConfigTimeoutMS", Int(900_000), Startup, TAKEN),
    row("honorSystemUmask", Bool(false), Startup, TAKEN),
    row("loadRoutingTableOnStartup", Bool(true), Startup, TAKEN),
    row("localLogicalSessionTimeoutMinutes", Int(30), Never, ACTS),
    // Its value is in the log book.
    row("logComponentVerbosity", Texts(&[]), Runtime, ACTS),
    row("logLevel", Int(0), Always, ACTS),
    row("logicalSessionRefreshMillis", Int(300_000), Startup, ACTS),
    row("maxAcceptableLogicalClockDriftSecs", Int(31_536_000), Never, ACTS),
    row("maxLogSizeKB", Int(10), Never, ACTS),
    row("maxSessions", Int(1_000_000), Startup, TAKEN),
    row("maxTimeMSForHedgedReads", Int(150), Always, ACTS),
    row("mongosShutdownTimeoutMillisForSignaledShutdown", Int(15_000), Always, ACTS),
    row("pointsmanGoneClientCursorTimeoutMillis", Int(20_000), Always, ACTS),
    row("pointsmanGroupMergeMaxBytes", Int(64 << 20), Always, ACTS),
    row("pointsmanGroupMergeMaxBytesOfAll", Int(256 << 20), Always, ACTS),
    row("pointsmanReadAhead", Bool(true), Always, ACTS),
    row("quiet", Bool(false), Always, ACTS),
    row("readHedgingMode", Text("on"), Always, ACTS),
    row("replicaSetMonitorProtocol", Text("streamable"), Never, ACTS),
    row("requireApiVersion", Bool(false), Always, ACTS),
    row("rewriteStateChangeErrors", Bool(true), Never, ACTS),
    row("scramIterationCount", Int(10_000), Startup, TAKEN),
    row("scramSHA256IterationCount", Int(15_000), Startup, TAKEN),
    row("sslMode", Text("disabled"), Never, ACTS),
    row("taskExecutorPoolSize", Int(1), Startup, TAKEN),
    row("tcpFastOpenClient", Bool(true), Startup, TAKEN),
    row("tcpFastOpenQueueSize", Int(1024), Startup, TAKEN),
    row("tcpFastOpenServer", Bool(true), Startup, TAKEN),
    row("testingDiagnosticsEnabled", Bool(false), Startup, TAKEN),
    row("tlsMode", Text("disabled"), Never, ACTS),
    row("traceExceptions", Bool(false), Runtime, TAKEN),
    row("transactionLifetimeLimitSeconds", Int(60), Startup, TAKEN),
    row("userCacheInvalidationIntervalSecs", Int(30), Startup, TAKEN),
    row("warmMinConnectionsInShardingTaskExecutorPoolOnStartup", Bool(true), Startup, TAKEN),
    row("warmMinConnectionsInShardingTaskExecutorPoolOnStartupWaitMS", Int(2000), Startup, TAKEN),
    row("watchdogPeriodSeconds", Int(-1), Startup, TAKEN),
];
