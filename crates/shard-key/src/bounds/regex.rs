//! The strings that an anchored regular expression can match: those with its literal prefix.

use document::{Doc, Value};

use super::interval::{End, Interval};
use crate::key::Element;

/// The interval of all strings that can match.
pub(super) fn strings(pattern: &[u8], options: &[u8]) -> Option<Interval> {
    let prefix = std::str::from_utf8(pattern).ok().and_then(|text| prefix(text, options)).unwrap_or_default();
    let low = End { value: Element::new(Value::String(prefix.as_bytes())), inclusive: true };
    let high = match successor(&prefix) {
        Some(next) => Element::new(Value::String(next.as_bytes())),
        None => Element::new(Value::Document(Doc::empty())),
    };
    Interval::new(low, End { value: high, inclusive: false })
}

/// The literal text that every match starts with.
fn prefix(pattern: &str, options: &[u8]) -> Option<String> {
    let (rest, any_line) = match pattern.strip_prefix("\\A") {
        Some(rest) => (rest, true),
        None => (pattern.strip_prefix('^')?, false),
    };
    let mut extended = false;
    for option in options {
        match option {
            // `^` also matches behind a line end, \A does not.
            b'm' if any_line => {}
            b's' | b'u' => {}
            b'x' => extended = true,
            _ => return None,
        }
    }
    // An alternative somewhere (even one inside of a group) makes nothing sure.
    if rest.contains('|') {
        return None;
    }
    let mut literal = String::new();
    let mut chars = rest.chars();
    while let Some(c) = chars.next() {
        match c {
            // The character before may be absent.
            '*' | '?' | '{' => {
                literal.pop();
                break;
            }
            '\\' => match chars.next() {
                Some(escaped) if !escaped.is_alphanumeric() && escaped != '\0' => literal.push(escaped),
                _ => break,
            },
            '^' | '$' | '.' | '[' | '(' | ')' | '+' | ']' | '}' => break,
            '#' if extended => break,
            c if extended && c.is_whitespace() => {}
            c => literal.push(c),
        }
    }
    Some(literal)
}

/// The first string behind all that start with `prefix`: UTF-8 bytes order as code points do.
fn successor(prefix: &str) -> Option<String> {
    let mut text = prefix.to_owned();
    while let Some(last) = text.pop() {
        let next = match u32::from(last) + 1 {
            0xD800 => Some('\u{E000}'),
            code => char::from_u32(code),
        };
        if let Some(next) = next {
            text.push(next);
            return Some(text);
        }
    }
    None
}

#[cfg(test)]
mod tests;
