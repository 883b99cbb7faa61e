//! Who is who: the router's version and commands, the client's address.

use document::{DocBuf, DocWriter};

use crate::codes::ErrorCode;
use crate::command::{Access, Command, Op, Status, table};
use crate::error::{CommandError, CommandResult};
use crate::reply::Reply;

/// `ping`
pub async fn ping(_op: &Op<'_>) -> CommandResult<Reply> {
    Ok(Reply::ok())
}

/// `buildInfo`: the server version whose behaviour this router gives, and its own in a field of its own.
pub async fn build_info(_op: &Op<'_>) -> CommandResult<Reply> {
    let mut doc = DocBuf::new();
    doc.write(|w| {
        w.put("version", crate::SERVER_VERSION);
        w.put("gitVersion", concat!("pointsman-", env!("CARGO_PKG_VERSION")));
        w.array("modules", [], |w, index, module: &str| w.put(index, module));
        w.put("allocator", "jemalloc");
        w.put("javascriptEngine", "none");
        w.put("sysInfo", "deprecated");
        w.array("versionArray", version_array(), |w, index, part| w.put(index, part));
        w.doc("buildEnvironment", |w| {
            w.put("target_arch", std::env::consts::ARCH);
            w.put("target_os", std::env::consts::OS);
        });
        w.put("bits", i32::try_from(usize::BITS).unwrap_or(64));
        w.put("debug", cfg!(debug_assertions));
        w.put("maxBsonObjectSize", i32::try_from(wire::MAX_DOCUMENT_BYTES).unwrap_or(i32::MAX));
        w.doc("pointsman", |w| w.put("version", env!("CARGO_PKG_VERSION")));
        w.put("ok", 1.0);
    });
    Ok(Reply::from_doc(doc.as_doc()))
}

/// `6.0.5` as `[6, 0, 5, 0]`; the fourth tells release candidates from releases.
fn version_array() -> impl Iterator<Item = i32> {
    crate::SERVER_VERSION.split('.').map(|part| part.parse().unwrap_or(0)).chain([0]).take(4)
}

/// `whatsmyuri`
pub async fn whatsmyuri(op: &Op<'_>) -> CommandResult<Reply> {
    let mut doc = DocBuf::new();
    doc.append("you", &op.client.address());
    Ok(Reply::ok_with(doc.as_doc()))
}

/// `connectionStatus`: no one is authenticated until authentication is built.
pub async fn connection_status(op: &Op<'_>) -> CommandResult<Reply> {
    let shows_privileges = op.request.body.get("showPrivileges").is_some_and(document::Value::is_truthy);
    let mut doc = DocBuf::new();
    doc.append_doc("authInfo", |w| {
        let mut none = |name| w.array(name, [], |w, index, item: &str| w.put(index, item));
        none("authenticatedUsers");
        none("authenticatedUserRoles");
        if shows_privileges {
            none("authenticatedUserPrivileges");
        }
    });
    Ok(Reply::ok_with(doc.as_doc()))
}

/// `listCommands`: the rows of the command table that work.
pub async fn list_commands(op: &Op<'_>) -> CommandResult<Reply> {
    let test_commands = op.router.parameters().test_commands();
    let mut rows: Vec<&Command> = table::rows()
        .filter(|row| test_commands || !row.test_only)
        .filter(|row| !matches!(row.status, Status::Refused(_)))
        .collect();
    rows.sort_by_key(|row| row.name);
    let mut doc = DocBuf::with_capacity(rows.len() * 160);
    doc.append_doc("commands", |w| {
        for row in rows {
            w.doc(row.name, |w| describe(row, w));
        }
    });
    Ok(Reply::ok_with(doc.as_doc()))
}

fn describe(row: &Command, w: &mut DocWriter<'_>) {
    w.put("help", row.name);
    if !row.aliases.is_empty() {
        w.array("aliases", row.aliases, |w, index, alias| w.put(index, *alias));
    }
    w.put("requiresAuth", !row.before_auth);
    w.put("secondaryOk", row.access != Access::Write);
    w.put("adminOnly", row.admin_only);
    w.array("apiVersions", row.api_v1.then_some("1"), |w, index, version| w.put(index, version));
    w.array("deprecatedApiVersions", [], |w, index, version: &str| w.put(index, version));
}

/// `isdbgrid`
pub async fn isdbgrid(op: &Op<'_>) -> CommandResult<Reply> {
    let host = &op.router.settings().host;
    let mut doc = DocBuf::new();
    doc.append("isdbgrid", 1)
        .append("hostname", host.rsplit_once(':').map_or(host.as_str(), |(name, _)| name));
    Ok(Reply::ok_with(doc.as_doc()))
}

/// `features`
pub async fn features(op: &Op<'_>) -> CommandResult<Reply> {
    let [.., a, b, c, d] = op.router.process_id();
    let mut doc = DocBuf::new();
    doc.append_doc("js", |w| w.put("utf8", true));
    doc.append("oidMachine", i64::from(u32::from_be_bytes([a, b, c, d])));
    Ok(Reply::ok_with(doc.as_doc()))
}

/// Any step of a login: nobody is authenticated (yet).
pub async fn log_in(_op: &Op<'_>) -> CommandResult<Reply> {
    Err(CommandError::new(
        ErrorCode::AuthenticationFailed,
        "Authentication failed: this router does not authenticate users yet. Connect without credentials, on a trusted \
         network only",
    ))
}

/// `logout`: nothing to forget until authentication is built.
pub async fn logout(_op: &Op<'_>) -> CommandResult<Reply> {
    Ok(Reply::ok())
}

/// `getnonce`: of an authentication that is long gone; drivers' tests still ask for it.
pub async fn get_nonce(_op: &Op<'_>) -> CommandResult<Reply> {
    let mut doc = DocBuf::new();
    doc.append("nonce", format!("{:016x}", rand::random::<u64>()).as_str());
    Ok(Reply::ok_with(doc.as_doc()))
}
