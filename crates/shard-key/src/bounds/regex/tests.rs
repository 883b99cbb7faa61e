use super::{prefix, successor};

#[test]
fn literal_prefixes() {
    let of = |pattern| prefix(pattern, b"").unwrap_or_default();
    for (pattern, expected) in [
        ("^abc", "abc"),
        ("\\Aabc", "abc"),
        ("abc", ""),
        ("^", ""),
        ("^abc$", "abc"),
        ("^abc.*", "abc"),
        ("^ab?c", "a"),
        ("^ab*", "a"),
        ("^ab{0,1}", "a"),
        ("^ab+", "ab"),
        ("^a(b|c)", ""),
        ("^a|b", ""),
        ("^a\\.b", "a.b"),
        ("^a\\d", "a"),
        ("^a\\Qb", "a"),
        ("^a[bc]", "a"),
        ("^é😀?", "é"),
    ] {
        assert_eq!(of(pattern), expected, "{pattern}");
    }
}

#[test]
fn options_that_spoil_a_prefix() {
    assert_eq!(prefix("^abc", b"i"), None);
    assert_eq!(prefix("^abc", b"m"), None);
    assert_eq!(prefix("\\Aabc", b"m").as_deref(), Some("abc"));
    assert_eq!(prefix("^abc", b"s").as_deref(), Some("abc"));
    assert_eq!(prefix("^a b # c", b"x").as_deref(), Some("ab"));
}

#[test]
fn the_string_behind_a_prefix() {
    assert_eq!(successor("abc").as_deref(), Some("abd"));
    assert_eq!(successor("a\u{10FFFF}").as_deref(), Some("b"));
    assert_eq!(successor("a\u{D7FF}").as_deref(), Some("a\u{E000}"));
    assert_eq!(successor("\u{10FFFF}"), None);
    assert_eq!(successor(""), None);
}
