//! The calls: for each command valid ones and wrong ones, in an order in which they can run one after the other.

mod data;
mod router;
mod shape;

use bson::spec::BinarySubtype;
use bson::{Binary, Document, doc};

/// What an answer must be.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Want {
    /// A success without write errors.
    Ok,
    /// An error of this code.
    Code(i32),
    /// An error without a code, as a few commands of a mongos give.
    NoCode,
    /// A success whose first write error has this code.
    WriteError(i32),
}

/// One call.
pub(crate) struct Call {
    pub(crate) db: &'static str,
    pub(crate) command: Document,
    pub(crate) want: Want,
}

/// The calls of one command.
pub(crate) struct Row {
    pub(crate) name: &'static str,
    pub(crate) calls: Vec<Call>,
    /// A field that it does not know is an error.
    pub(crate) strict: bool,
}

impl Row {
    fn call(mut self, db: &'static str, command: Document, want: Want) -> Self {
        self.calls.push(Call { db, command, want });
        self
    }

    /// A success on `admin`.
    fn admin(self, command: Document) -> Self {
        self.call("admin", command, Want::Ok)
    }

    /// A success on `every`.
    fn ok(self, command: Document) -> Self {
        self.call("every", command, Want::Ok)
    }

    /// An error of this code on `every`.
    fn bad(self, code: i32, command: Document) -> Self {
        self.call("every", command, Want::Code(code))
    }

    /// An error of this code on `admin`.
    fn bad_admin(self, code: i32, command: Document) -> Self {
        self.call("admin", command, Want::Code(code))
    }

    /// Ignores fields that it does not know, as this command does in mongos.
    fn lenient(mut self) -> Self {
        self.strict = false;
        self
    }
}

fn row(name: &'static str) -> Row {
    Row { name, calls: Vec::new(), strict: true }
}

/// Where nothing is.
const NOTHING: &str = "nothere";

pub(crate) fn session(n: u8) -> Document {
    doc! { "id": Binary { subtype: BinarySubtype::Uuid, bytes: vec![n; 16] } }
}

fn in_transaction(n: u8, mut command: Document, starts: bool) -> Document {
    command.extend(doc! { "lsid": session(n), "txnNumber": 1_i64, "autocommit": false });
    if starts {
        command.insert("startTransaction", true);
    }
    command
}

/// All rows. `shard0` is the connection string of that shard.
pub(crate) fn all(shard0: String) -> Vec<Row> {
    [
        data::handshake(),
        data::reads(),
        data::writes(),
        data::sessions(),
        shape::ddl(),
        shape::sharding(shard0),
        router::settings(),
        router::users(),
        router::process(),
    ]
    .into_iter()
    .flatten()
    .collect()
}
