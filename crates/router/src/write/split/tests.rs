use std::collections::HashMap;

use chunk_map::{ChunkVersion, ShardId, ShardSet, Target};

use super::{Aim, MAX_CHILD_BYTES, MAX_STATEMENTS, Plan, Rules, Source, for_one, split};
use crate::codes::ErrorCode;
use crate::error::{CommandError, CommandResult};
use crate::remote::routing::{Destination, Versions};

/// One character a statement: a digit is its shard, `*` is all, `?` is the one of two that has it, `!` is refused.
struct Script {
    script: Vec<u8>,
    bytes: usize,
    shards: Vec<ShardId>,
    taken: HashMap<u32, ShardSet>,
}

fn shard(name: u8) -> ShardId {
    ShardId::new(&format!("s{}", char::from(name)))
}

fn target(name: u8) -> Target {
    Target { shard: shard(name), version: ChunkVersion::UNSHARDED }
}

impl Script {
    fn new(script: &str) -> Self {
        let shards = b"012".map(shard).to_vec();
        Self { script: script.into(), bytes: 100, shards, taken: HashMap::new() }
    }

    fn split(&self, ordered: bool) -> String {
        let due = 0..u32::try_from(self.script.len()).unwrap();
        text(&split(self, due, Rules { ordered, retryable: false, most: MAX_STATEMENTS }))
    }
}

impl Source for Script {
    fn aim(&self, statement: u32) -> CommandResult<Aim> {
        match self.script[usize::try_from(statement).unwrap()] {
            b'*' => Ok(Aim::Many(self.shards.iter().take(2).cloned().collect())),
            b'?' => Ok(Aim::Any(b"01".iter().map(|name| target(*name)).collect())),
            b'!' => Err(CommandError::new(ErrorCode::ShardKeyNotFound, "no")),
            name => Ok(Aim::One(target(name))),
        }
    }

    fn bytes(&self, _statement: u32) -> usize {
        self.bytes
    }

    fn all_shards(&self) -> &[ShardId] {
        &self.shards
    }

    fn taken(&self, statement: u32) -> Option<&ShardSet> {
        self.taken.get(&statement)
    }
}

/// `s0[0,1] s1*[2] !3 left 4`
fn text(plan: &Plan) -> String {
    let list = |list: &[u32]| list.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
    let mut parts: Vec<String> = plan
        .children
        .iter()
        .map(|child| {
            let ignored =
                matches!(child.destination.versions, Versions::Sharded(v) if v == ChunkVersion::IGNORED);
            assert_eq!(ignored, child.broadcast);
            format!(
                "{}{}[{}]",
                child.destination.shard,
                if ignored { "*" } else { "" },
                list(&child.statements)
            )
        })
        .collect();
    parts.extend(plan.refused.iter().map(|(statement, _)| format!("!{statement}")));
    parts.extend(plan.completed.iter().map(|statement| format!("done {statement}")));
    if !plan.left.is_empty() {
        parts.push(format!("left {}", list(&plan.left)));
    }
    parts.join(" ")
}

#[test]
fn ordered_is_cut_into_runs() {
    for (script, wanted) in [
        ("00012", "s0[0,1,2]"),
        ("0*0", "s0[0]"),
        ("*0*", "s0*[0] s1*[0] s2*[0]"),
        ("?0", "s0[0] s1[0]"),
        ("0?", "s0[0]"),
        ("0!0", "s0[0]"),
        ("!00", "!0"),
    ] {
        assert_eq!(Script::new(script).split(true), wanted, "{script}");
    }
}

#[test]
fn unordered_is_grouped_by_shard() {
    for (script, wanted) in [
        ("20102", "s0[1,3] s1[2] s2[0,4]"),
        // A shard gets either versioned or broadcast statements in one round.
        ("0*0", "s0[0,2] left 1"),
        ("*0*", "s0*[0,2] s1*[0,2] s2*[0,2] left 1"),
        ("?02?", "s0[0,1,3] s1[0,3] s2[2]"),
        ("?*", "s0[0] s1[0] left 1"),
        ("0!1!", "s0[0] s1[2] !1 !3"),
    ] {
        assert_eq!(Script::new(script).split(false), wanted, "{script}");
    }
}

#[test]
fn shards_that_took_a_broadcast_statement_are_skipped() {
    let mut script = Script::new("*");
    script.taken.insert(0, ShardSet::from_iter(b"02".map(shard)));
    assert_eq!(script.split(true), "s1*[0]");
    script.taken.insert(0, ShardSet::from_iter(b"012".map(shard)));
    assert_eq!(script.split(true), "done 0");
    assert_eq!(script.split(false), "done 0");
    // Also when all documents are on one of them by now.
    let mut script = Script::new("0");
    script.taken.insert(0, ShardSet::from_iter([shard(b'0')]));
    assert_eq!(script.split(true), "s1*[0] s2*[0]");
}

#[test]
fn a_child_stays_below_its_limits_and_takes_at_least_one() {
    let mut script = Script::new("0101");
    script.bytes = MAX_CHILD_BYTES / 2 + 1;
    assert_eq!(script.split(true), "s0[0]");
    assert_eq!(script.split(false), "s0[0] s1[1] left 2,3");
    script.bytes = MAX_CHILD_BYTES * 2;
    assert_eq!(script.split(false), "s0[0] s1[1] left 2,3");
    let destination = Destination::config();
    let rules = Rules { ordered: false, retryable: false, most: MAX_STATEMENTS };
    let count = u32::try_from(MAX_STATEMENTS).unwrap() + 5;
    // Small statements of an unordered child count for the error that each may give.
    let plan = for_one(&destination, 0..count, |_| 10, rules);
    assert_eq!(plan.children[0].statements.len(), MAX_CHILD_BYTES / 263);
    assert_eq!(plan.children[0].statements.len() + plan.left.len(), usize::try_from(count).unwrap());
    let plan = for_one(
        &destination,
        0..count,
        |_| 10,
        Rules { ordered: true, retryable: true, most: MAX_STATEMENTS },
    );
    assert_eq!(plan.children[0].statements.len(), MAX_STATEMENTS);
}
