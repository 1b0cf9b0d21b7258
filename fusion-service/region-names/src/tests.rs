use super::*;
use proptest::prelude::*;

fn matches(pattern: &str, name: &str) -> bool {
    Pattern::parse(pattern).unwrap().matches(name)
}

#[test]
fn a_pattern_matches_whole_names() {
    for (pattern, name, expected) in [
        ("P", "P", true),
        ("P", "PQ", false),
        ("P", "QP", false),
        ("P", "p", false),
        ("P.Q", "PxQ", false),
        ("*", "", true),
        ("*", "P.Q", true),
        ("**", "", true),
        ("", "", true),
        ("", "P", false),
        ("*Q", "P.Q", true),
        ("*Q", "P.QR", false),
        ("P*", "P", true),
        ("P*P", "P", false),
        ("*P*", "aPb", true),
        ("a*b*c", "aXbYc", true),
        ("a*b*c", "aXcYb", false),
        ("a*b*b", "ab", false),
        ("ab*ba", "aba", false),
        ("*A*A*", "A", false),
        ("*A*A*", "xAxAx", true),
        ("*ab", "aab", true),
        ("P[1]", "P", false),
        ("P[1]", "P[1]", true),
        ("größe.*", "größe.x", true),
    ] {
        assert_eq!(matches(pattern, name), expected, "{pattern} {name}");
    }
}

#[test]
fn blanks_of_ascii_do_not_count_and_others_are_unexpected() {
    for pattern in [" P . Q ", "\tP.Q\n", "P\x0b.\x0cQ\r"] {
        assert_eq!(Pattern::parse(pattern), Pattern::parse("P.Q"), "{pattern:?}");
    }
    for (pattern, character) in [("P\u{a0}Q", '\u{a0}'), ("P\u{2003}", '\u{2003}'), ("\u{85}", '\u{85}')] {
        assert_eq!(Pattern::parse(pattern).unwrap_err().character, character, "{pattern:?}");
    }
}

#[test]
fn a_pattern_has_few_characters() {
    for (pattern, character) in
        [("P?", '?'), ("P|Q", '|'), ("a-b", '-'), (" (P)", '('), ("P+", '+'), ("\\", '\\'), ("$", '$'), ("P\0", '\0')]
    {
        let unexpected = Pattern::parse(pattern).unwrap_err();
        assert_eq!((unexpected.character, unexpected.pattern.as_str()), (character, pattern.trim_start()));
    }
    let message = Pattern::parse("P ?").unwrap_err().to_string();
    assert_eq!(message, "region pattern \"P?\": unexpected character '?'");
}

#[test]
fn an_exact_name_beats_patterns_and_the_last_one_wins() {
    for (patterns, name, expected) in [
        (&["P", "*"][..], "P", Some(0)),
        (&["*", "P*"], "P", Some(1)),
        (&["P*", "*"], "P", Some(1)),
        (&["P", " P"], "P", Some(1)),
        (&["P", "*", "P Q"], "PQ", Some(2)),
        (&["Q"], "P", None),
        (&[], "P", None),
        // What cannot be read selects nothing.
        (&["*", "P-*"], "P-1", Some(0)),
    ] {
        assert_eq!(Patterns::parse(patterns.iter().copied()).0.position(name), expected, "{patterns:?} {name}");
    }
    let (_, malformed) = Patterns::parse(["a?", "P", "b?"]);
    assert_eq!(malformed.iter().map(|m| m.pattern.as_str()).collect::<Vec<_>>(), ["a?", "b?"]);
}

#[test]
fn a_search_ends_when_its_caller_says_so() {
    let (patterns, _) = Patterns::parse(["*a", "*b", "P", "*c"]);
    let search = |name: &str, most: usize| {
        let mut left = most;
        patterns.try_position(name, |_| {
            left = left.checked_sub(1).ok_or("too many")?;
            Ok(())
        })
    };
    for (name, most, expected) in [
        ("P", 0, Ok(Some(2))),
        ("Qc", 0, Err("too many")),
        ("Qc", 1, Ok(Some(3))),
        ("Qa", 2, Err("too many")),
        ("Qa", 3, Ok(Some(0))),
        ("Q", 3, Ok(None)),
    ] {
        assert_eq!(search(name, most), expected, "{name} {most}");
    }
}

#[test]
fn stars_in_a_row_are_one() {
    for (written, kept) in [("**", 1), ("a***b", 3), ("* *\t*", 1), ("*a**b*", 5), ("a*b", 3), ("ab", 2), ("", 0)] {
        assert_eq!(Pattern::parse(written).unwrap().length(), kept, "{written:?}");
    }
    assert_eq!(Pattern::parse(&"*".repeat(1 << 20)), Pattern::parse("*"));
    // A message has the pattern as it was given.
    assert_eq!(Pattern::parse("**?").unwrap_err().pattern, "**?");
}

/// How many cases a property is tried on: a few, or as many as `PROPTEST_CASES` says.
fn cases() -> ProptestConfig {
    let wanted = std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok());
    ProptestConfig { cases: wanted.unwrap_or(256), failure_persistence: None, ..Default::default() }
}

/// The meaning of a pattern, written as slowly as it is plain.
fn means(pattern: &[char], name: &[char]) -> bool {
    match (pattern, name) {
        ([], name) => name.is_empty(),
        (['*', rest @ ..], name) => (0..=name.len()).any(|skipped| means(rest, &name[skipped..])),
        ([first, rest @ ..], [character, others @ ..]) => first == character && means(rest, others),
        (_, []) => false,
    }
}

proptest! {
    #![proptest_config(cases())]

    #[test]
    fn matching_is_what_a_pattern_means(pattern in "[ab.*]{0,7}", name in "[ab.]{0,9}") {
        let characters = |text: &str| text.chars().collect::<Vec<_>>();
        prop_assert_eq!(matches(&pattern, &name), means(&characters(&pattern), &characters(&name)));
    }

    #[test]
    fn a_pattern_without_star_matches_its_own_name_only(name in "[a-zä0-9_.]{1,8}", other in "[a-zä0-9_.]{1,8}") {
        prop_assert!(matches(&name, &name));
        prop_assert_eq!(matches(&name, &other), name == other);
    }

    #[test]
    fn blanks_change_nothing(pattern in "[ab.*?-]{0,6}", blanks in prop::collection::vec("[ \t\n\r\x0b\x0c]{0,2}", 7)) {
        let mut spread: String = pattern.chars().zip(&blanks).map(|(c, blank)| format!("{blank}{c}")).collect();
        spread.push_str(&blanks[6]);
        prop_assert_eq!(Pattern::parse(&spread), Pattern::parse(&pattern));
    }

    #[test]
    fn any_text_is_read_or_refused_for_a_character(text in any::<String>(), name in any::<String>()) {
        match Pattern::parse(&text) {
            Ok(pattern) => _ = pattern.matches(&name),
            Err(unexpected) => {
                prop_assert!(!is_pattern_character(unexpected.character) && text.contains(unexpected.character));
            }
        }
        let exact = name.chars().all(|c| is_blank(c) || is_pattern_character(c) && c != '*');
        prop_assert_eq!(Pattern::parse(&name).is_ok_and(|pattern| pattern.is_exact()), exact);
    }

    #[test]
    fn the_position_follows_the_rule(patterns in prop::collection::vec("[ab*?]{0,3}", 0..6), name in "[ab]{1,3}") {
        let readable = |at: &usize| Pattern::parse(&patterns[*at]).is_ok_and(|pattern| pattern.matches(&name));
        let exact = (0..patterns.len()).rev().find(|at| patterns[*at] == name);
        let expected = exact.or_else(|| (0..patterns.len()).rev().find(readable));
        prop_assert_eq!(Patterns::parse(patterns.iter().map(String::as_str)).0.position(&name), expected);
    }
}
