//! A real mongod to ask, over its wire protocol and nothing else: `document` and `shard-key` stand below everything
//! that could do it better. Used by tests that are ignored unless `MONGOD=/path` names the server.
#![allow(dead_code, unreachable_pub, reason = "shared by several tests")]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test"
)]
#![allow(clippy::needless_pass_by_value, reason = "commands are written where they are sent")]

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use bson::{Document, doc};

/// A mongod of our own; it ends with this value.
pub struct Oracle {
    child: Child,
    directory: PathBuf,
    stream: TcpStream,
}

impl Oracle {
    /// Starts the server that `MONGOD` names.
    pub fn start() -> Self {
        let mongod = std::env::var_os("MONGOD").expect("MONGOD=/path/to/mongod is needed for this test");
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let directory = std::env::temp_dir().join(format!("oracle-{}-{port}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let child = Command::new(mongod)
            .args(["--bind_ip", "127.0.0.1", "--nounixsocket", "--wiredTigerCacheSizeGB", "0.25"])
            .args(["--setParameter", "diagnosticDataCollectionEnabled=false", "--port", &port.to_string()])
            .arg("--dbpath")
            .arg(&directory)
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let mut tries = 0;
        let stream = loop {
            match TcpStream::connect(("127.0.0.1", port)) {
                Ok(stream) => break stream,
                Err(error) => assert!(tries < 600, "mongod does not listen: {error}"),
            }
            tries += 1;
            std::thread::sleep(Duration::from_millis(50));
        };
        Self { child, directory, stream }
    }

    /// Runs a command and gives its reply, which must be ok.
    pub fn run(&mut self, database: &str, command: Document) -> Document {
        let reply = self.try_run(database, command.clone());
        assert_eq!(reply.get_f64("ok").ok(), Some(1.0), "{command} gave {reply}");
        reply
    }

    /// Runs a command and gives its reply.
    pub fn try_run(&mut self, database: &str, mut command: Document) -> Document {
        command.insert("$db", database);
        let body = command.to_vec().unwrap();
        let length = i32::try_from(16 + 4 + 1 + body.len()).unwrap();
        let mut message = Vec::new();
        for word in [length, 1, 0, 2013, 0] {
            message.extend_from_slice(&word.to_le_bytes());
        }
        message.push(0);
        message.extend_from_slice(&body);
        self.stream.write_all(&message).unwrap();
        let mut length = [0; 4];
        self.stream.read_exact(&mut length).unwrap();
        let mut rest = vec![0; usize::try_from(i32::from_le_bytes(length)).unwrap() - 4];
        self.stream.read_exact(&mut rest).unwrap();
        Document::from_reader(&rest[12 + 4 + 1..]).unwrap()
    }

    /// All documents of a find.
    pub fn find(&mut self, database: &str, command: Document) -> Vec<Document> {
        self.try_find(database, command.clone()).unwrap_or_else(|| panic!("refused: {command}"))
    }

    /// All documents of a find, if the server takes it.
    pub fn try_find(&mut self, database: &str, command: Document) -> Option<Vec<Document>> {
        let mut found = Vec::new();
        let collection = command.get_str("find").unwrap().to_owned();
        let mut reply = self.try_run(database, command);
        if reply.get_f64("ok").ok() != Some(1.0) {
            return None;
        }
        loop {
            let cursor = reply.get_document("cursor").unwrap();
            let batch = cursor.get_array("firstBatch").or_else(|_| cursor.get_array("nextBatch")).unwrap();
            found.extend(batch.iter().map(|item| item.as_document().unwrap().clone()));
            match cursor.get_i64("id").unwrap() {
                0 => return Some(found),
                id => reply = self.run(database, doc! {"getMore": id, "collection": &collection}),
            }
        }
    }
}

impl Drop for Oracle {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}
