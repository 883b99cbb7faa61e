//! The total order against the server's: a frozen answer that runs everywhere, and a real mongod that is asked anew.
//!
//! `testdata/order-6.0.5.jsonl`: a line is a class of equal values, `{v: value}` in hex; lines ascend.
//! To ask a server: `MONGOD=/path cargo test -p document --test server_order -- --ignored`, with `FREEZE=1` to write
//! its answer into the file.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test"
)]

mod oracle;

use std::cmp::Ordering;

use bson::{Bson, Decimal128, Document, doc};
use document::order::compare_values;
use document::{Doc, Value};

const FROZEN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/testdata/order-6.0.5.jsonl");

fn value(bytes: &[u8]) -> Value<'_> {
    Doc::validate(bytes).unwrap().get("v").unwrap()
}

/// Classes of equal values in ascending order: every pair must compare as their places do.
fn check(classes: &[Vec<Vec<u8>>]) {
    let all: Vec<(usize, &[u8])> = classes
        .iter()
        .enumerate()
        .flat_map(|(rank, class)| class.iter().map(move |v| (rank, &**v)))
        .collect();
    let mut wrong = Vec::new();
    for (i, a) in &all {
        for (j, b) in &all {
            let found = compare_values(value(a), value(b));
            if found != i.cmp(j) {
                wrong.push(format!("{:?} {found:?} {:?}, server: {:?}", value(a), value(b), i.cmp(j)));
            }
        }
    }
    assert!(wrong.is_empty(), "{} pairs:\n{}", wrong.len(), wrong[..wrong.len().min(20)].join("\n"));
}

#[test]
fn frozen_answer_of_the_server() {
    let text = std::fs::read_to_string(FROZEN).unwrap();
    let classes: Vec<Vec<Vec<u8>>> = text
        .lines()
        .map(|line| {
            let items = line.trim_matches(['[', ']']).split(',');
            items.map(|item| unhex(item.trim().trim_matches('"'))).collect()
        })
        .collect();
    assert!(classes.len() > 300, "only {} classes", classes.len());
    check(&classes);
}

#[test]
#[ignore = "needs MONGOD=/path"]
fn answer_of_a_real_server() {
    let mut server = oracle::Oracle::start();
    let values = samples();
    let documents = |from: usize, to: usize| -> Vec<Bson> {
        let part = values.iter().enumerate().take(to).skip(from);
        part.map(|(i, v)| doc! {"_id": i32::try_from(i).unwrap(), "k": {"v": v.clone()}}.into()).collect()
    };
    for from in (0..values.len()).step_by(1000) {
        server.run("t", doc! {"insert": "c", "documents": documents(from, (from + 1000).min(values.len()))});
    }
    server.run("t", doc! {"createIndexes": "c", "indexes": [{"key": {"k": 1}, "name": "k"}]});
    // Values that are equal come in the order of `_id`, so that they swap places between the two sorts.
    let mut sorted = |id: i32| -> Vec<usize> {
        let found =
            server.find("t", doc! {"find": "c", "sort": {"k": 1, "_id": id}, "projection": {"_id": 1}});
        found.iter().map(|d| usize::try_from(d.get_i32("_id").unwrap()).unwrap()).collect()
    };
    let (up, down) = (sorted(1), sorted(-1));
    assert_eq!(up.len(), values.len());
    let mut classes = Vec::new();
    let mut start = 0;
    while start < up.len() {
        let end = down.iter().position(|id| *id == up[start]).unwrap() + 1;
        let class: Vec<Vec<u8>> =
            up[start..end].iter().map(|i| doc! {"v": values[*i].clone()}.to_vec().unwrap()).collect();
        classes.push(class);
        start = end;
    }
    if std::env::var_os("FREEZE").is_some() {
        let line = |class: &Vec<Vec<u8>>| {
            let items: Vec<String> = class.iter().map(|bytes| format!("\"{}\"", hex(bytes))).collect();
            format!("[{}]\n", items.join(", "))
        };
        std::fs::write(FROZEN, classes.iter().map(line).collect::<String>()).unwrap();
    }
    check(&classes);
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex(text: &str) -> Vec<u8> {
    (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap()).collect()
}

/// A generator that gives the same values in each run.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    fn below(&mut self, n: usize) -> usize {
        usize::try_from(self.next() % u64::try_from(n).unwrap()).unwrap()
    }
}

fn decimal(text: &str) -> Bson {
    Bson::Decimal128(text.parse().unwrap_or_else(|e| panic!("{text}: {e}")))
}

/// The double, its neighbours, its integer, and decimals right at and beside it.
fn around(n: f64, out: &mut Vec<Bson>) {
    for m in [n, n.next_up(), n.next_down()] {
        out.push(Bson::Double(m));
    }
    #[allow(clippy::cast_possible_truncation)]
    if n.abs() < 9.3e18 {
        out.extend([Bson::Int64(n as i64), Bson::Int64((n as i64).saturating_add(1))]);
    }
    if n.is_finite() {
        // 34 digits, cut and rounded.
        let exact = format!("{n:.60e}");
        let (digits, exponent) = exact.split_once('e').unwrap();
        let length = digits.find('.').unwrap() + 34;
        out.push(decimal(&format!("{}E{exponent}", &digits[..length])));
        out.push(decimal(&format!("{n:.33e}").replace('e', "E")));
        out.push(decimal(&format!("{n:.4e}").replace('e', "E")));
    }
}

#[allow(clippy::too_many_lines)]
fn samples() -> Vec<Bson> {
    use Bson::{
        Boolean, DateTime, Double, Int32, Int64, JavaScriptCode, MaxKey, MinKey, Null, Symbol, Undefined,
    };
    let mut values = vec![MinKey, MaxKey, Undefined, Null, Boolean(false), Boolean(true)];
    for n in [0, 1, -1, 5, i32::MAX, i32::MIN] {
        values.extend([Int32(n), Int64(n.into()), Double(n.into()), decimal(&n.to_string())]);
    }
    for text in [
        "NaN",
        "Infinity",
        "-Infinity",
        "0",
        "-0",
        "0E+100",
        "1.0",
        "1.00",
        "10E-1",
        "0.1",
        "-0.1",
        "1E-6176",
        "9.999999999999999999999999999999999E+6144",
        "-9.999999999999999999999999999999999E+6144",
        "1E+6111",
        "1E+40",
        "0.10000000000000001",
        "0.1000000000000000055511151231257827",
        "0.1000000000000000055511151231257828",
        "9007199254740992",
        "9007199254740993",
        "9007199254740993.5",
        "9223372036854775807",
        "9223372036854775808",
        "-9223372036854775808",
        "-9223372036854775809",
        "9223372036854775807.5",
        "1E-400",
        "1E+400",
        "-1E+400",
    ] {
        values.push(decimal(text));
    }
    // Coefficients above 34 nines, and the long form: not canonical, zero.
    values.push(Bson::Decimal128(Decimal128::from_bytes([
        0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0x41, 0x30,
    ])));
    values.push(Bson::Decimal128(Decimal128::from_bytes([
        1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x00, 0x6C,
    ])));
    values.extend([f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -0.0].map(Double));
    values.extend([i64::MAX, i64::MIN, i64::MAX - 1, (1 << 53) + 1, -(1 << 53) - 1].map(Int64));
    for n in [
        0.1,
        -0.1,
        0.5,
        1.5,
        1e15,
        1e22,
        1e23,
        1e100,
        -1e100,
        1e300,
        f64::MAX,
        f64::MIN,
        f64::MIN_POSITIVE,
        5e-324,
        -5e-324,
        2e-310,
        123_456.789,
        9_007_199_254_740_992.0,
        9_223_372_036_854_775_808.0,
        -9_223_372_036_854_775_808.0,
        18_014_398_509_481_984.0,
        3.0,
        1e-10,
        2.5e-100,
    ] {
        around(n, &mut values);
    }
    let mut random = Random(0x9E37_79B9_7F4A_7C15);
    for _ in 0..40 {
        let exponent = i32::try_from(random.below(600)).unwrap() - 300;
        #[allow(clippy::cast_precision_loss)]
        let mantissa = random.next() as f64 / 1e19;
        around(mantissa * 10f64.powi(exponent), &mut values);
    }
    let strings = ["", "\0", "A", "B", "a", "a\0", "aa", "b", "z", "é", "\u{FFFF}", "😀", "10", "9"];
    values.extend(strings.iter().map(|s| Bson::String((*s).to_owned())));
    values.extend(["", "a", "b"].iter().map(|s| Symbol((*s).to_owned())));
    values.extend(["", "a", "b", "aa"].iter().map(|s| JavaScriptCode((*s).to_owned())));
    for (code, scope) in
        [("a", doc! {}), ("a", doc! {"x": 1}), ("a", doc! {"x": 2}), ("b", doc! {}), ("", doc! {"y": 1})]
    {
        values.push(Bson::JavaScriptCodeWithScope(bson::JavaScriptCodeWithScope {
            code: code.to_owned(),
            scope,
        }));
    }
    for (subtype, bytes) in [
        (0u8, &b""[..]),
        (0, b"a"),
        (0, b"z"),
        (5, b"a"),
        (0, b"aa"),
        (128, b"aa"),
        (4, &[0; 16]),
        (4, &[0xFF; 16]),
        (0, b"\xFF"),
        (0, b"\x01"),
        (2, b"aa"),
    ] {
        values.push(Bson::Binary(bson::Binary { subtype: subtype.into(), bytes: bytes.to_vec() }));
    }
    for id in [[0; 12], [1; 12], [0x7F; 12], [0x80; 12], [0xFF; 12]] {
        values.push(bson::oid::ObjectId::from_bytes(id).into());
    }
    values.extend(
        [i64::MIN, -1, 0, 1, 1_577_934_245_678, i64::MAX].map(|ms| DateTime(bson::DateTime::from_millis(ms))),
    );
    for (time, increment) in [(0, 0), (0, 1), (1, 0), (1_700_000_000, 5), (u32::MAX, 0), (u32::MAX, u32::MAX)]
    {
        values.push(Bson::Timestamp(bson::Timestamp { time, increment }));
    }
    for (pattern, options) in
        [("a", ""), ("a", "i"), ("a", "im"), ("ab", ""), ("b", ""), ("", "x"), ("^a", "")]
    {
        values.push(Bson::RegularExpression(bson::Regex {
            pattern: pattern.try_into().unwrap(),
            options: options.try_into().unwrap(),
        }));
    }
    for (namespace, id) in
        [("b.c", 0), ("b.c", 1), ("a.cc", 0), ("a.c", 0xFF), ("", 0), ("a.c", 0), ("a.c", 1), ("b.c", 0xFF)]
    {
        values.push(Bson::DbPointer(db_pointer(namespace, [id; 12])));
    }
    for object in [
        doc! {},
        doc! {"a": Null},
        doc! {"": 1},
        doc! {"a": 1},
        doc! {"a": 1_i64},
        doc! {"a": 1, "b": 1},
        doc! {"a": 2},
        doc! {"b": 1},
        doc! {"a": "x"},
        doc! {"b": Null},
        doc! {"a": {}},
        doc! {"a": {"b": 1}},
        doc! {"a": [1]},
        doc! {"a": MaxKey},
        doc! {"a": MinKey},
        doc! {"b": 1, "a": 1},
        doc! {"a": 1.5, "b": "x"},
    ] {
        values.push(object.into());
    }
    for array in [
        vec![],
        vec![Int32(1)],
        vec![Double(1.0)],
        vec![Int32(2)],
        vec![Int32(1), Int32(1)],
        vec![Bson::String("a".to_owned())],
        vec![Null],
        vec![Bson::Array(vec![])],
        vec![Bson::Document(doc! {"a": 1})],
    ] {
        values.push(Bson::Array(array));
    }
    // And what all that gives inside of objects and arrays.
    let flat = values.len();
    for _ in 0..60 {
        let pick = |random: &mut Random, values: &[Bson]| values[random.below(flat)].clone();
        let (a, b) = (pick(&mut random, &values), pick(&mut random, &values));
        let name = ["a", "b", "c"][random.below(3)];
        values.push(if random.below(2) == 0 {
            doc! {name: a, "x": b}.into()
        } else {
            Bson::Array(vec![a, b])
        });
    }
    values
}

/// The `bson` crate gives no constructor for it, but decodes it.
fn db_pointer(namespace: &str, id: [u8; 12]) -> bson::DbPointer {
    let mut bytes = Vec::new();
    document::DocWriter::new(&mut bytes).value("v", Value::DbPointer { namespace: namespace.as_bytes(), id });
    let mut framed = i32::try_from(bytes.len() + 5).unwrap().to_le_bytes().to_vec();
    framed.extend_from_slice(&bytes);
    framed.push(0);
    match Document::from_reader(&*framed).unwrap().get("v") {
        Some(Bson::DbPointer(pointer)) => pointer.clone(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn equal_values_of_different_types_are_equal_both_ways() {
    let one = [Bson::Int32(1), Bson::Int64(1), Bson::Double(1.0), decimal("1.000")];
    let encoded: Vec<Vec<u8>> = one.iter().map(|v| doc! {"v": v.clone()}.to_vec().unwrap()).collect();
    for a in &encoded {
        for b in &encoded {
            assert_eq!(compare_values(value(a), value(b)), Ordering::Equal);
        }
    }
}
