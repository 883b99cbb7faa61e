use document::{Doc, Value};

use super::{NULL_HASH, hash_field, hash_value};

fn unhex(text: &str) -> Vec<u8> {
    (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap()).collect()
}

/// What 6.0.5 answered.
#[test]
fn every_vector_of_the_server() {
    let text = include_str!("../../testdata/hash-vectors.jsonl");
    let mut count = 0;
    for line in text.lines() {
        let vector: serde_json::Value = serde_json::from_str(line).unwrap();
        let expected: i64 = vector["hash"].as_str().unwrap().parse().unwrap();
        count += 1;
        if vector["missing"] == true {
            assert_eq!(NULL_HASH, expected);
            continue;
        }
        let bytes = unhex(vector["bson_hex"].as_str().unwrap());
        let field = Doc::validate(&bytes).unwrap().field("v").unwrap();
        assert_eq!(hash_field(field), expected, "{line}");
        assert_eq!(hash_value(field.value()), expected, "{line}");
    }
    assert_eq!(count, 140);
}

#[test]
fn doubles_truncate_and_saturate() {
    let same = |a: f64, b: i64| assert_eq!(hash_value(Value::Double(a)), hash_value(Value::Int64(b)), "{a}");
    same(9_223_372_036_854_775_808.0, i64::MIN);
    same(9_223_372_036_854_777_856.0, i64::MAX);
    same(f64::INFINITY, i64::MAX);
    same(f64::NEG_INFINITY, i64::MIN);
    same(f64::NAN, 0);
    same(-0.5, 0);
    same(-1.5, -1);
}
