//! Citations of rules in code, comments and documents.
//!
//! A citation is the word *rule* with one number, or *rules* with several: `rule X-1`, `rules X-1, Y-2 and Z-3`. It may
//! go on in the next line of a comment.

use crate::files::line_at;
use regex::Regex;
use std::sync::LazyLock;

/// Blanks between two words of a sentence, which may be in different lines of a comment.
const GAP: &str = r"(?:[ \t]|\r?\n[ \t]*(?:///|//!|//|\#+|\*)?)+";

/// A rule that is cited.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Citation {
    /// Number of the rule.
    pub(crate) rule: String,
    pub(crate) line: usize,
}

fn pattern(text: &str) -> Regex {
    Regex::new(&text.replace("{GAP}", GAP)).unwrap()
}

/// All citations of a text, in their order.
pub(crate) fn citations(text: &str) -> Vec<Citation> {
    static CITATION: LazyLock<Regex> = LazyLock::new(|| {
        pattern(
            r"\b[Rr]ules?{GAP}[a-z]+(?:-[a-z]+)*-[0-9]+\b(?:(?:,{GAP}(?:and{GAP})?|{GAP}(?:and|to|or){GAP})[a-z]+(?:-[a-z]+)*-[0-9]+\b)*",
        )
    });
    static NUMBER: LazyLock<Regex> = LazyLock::new(|| pattern(r"[a-z]+(?:-[a-z]+)*-[0-9]+\b"));
    let found = CITATION.find_iter(text).flat_map(|citation| {
        NUMBER.find_iter(citation.as_str()).map(move |number| Citation {
            rule: number.as_str().to_owned(),
            line: line_at(text, citation.start() + number.start()),
        })
    });
    found.collect()
}

/// Numbers of rules that stand alone, as they may in tables of the rules themselves. A part of a longer word is none.
pub(crate) fn mentions(text: &str) -> Vec<Citation> {
    static WORD: LazyLock<Regex> = LazyLock::new(|| pattern(r"[A-Za-z0-9_#./-]+"));
    static NUMBER: LazyLock<Regex> = LazyLock::new(|| pattern(r"^[a-z]+(?:-[a-z]+)*-[0-9]+$"));
    let words = WORD.find_iter(text).map(|word| (word.start(), word.as_str().trim_end_matches('.')));
    let numbers = words.filter(|(_, word)| NUMBER.is_match(word));
    numbers.map(|(start, word)| Citation { rule: word.to_owned(), line: line_at(text, start) }).collect()
}

/// Lines that refer to a document that is not part of the project, with the words.
pub(crate) fn foreign(text: &str) -> Vec<(usize, String)> {
    // Names of the documents that the first versions of the code referred to.
    const DOCUMENT: &str = r"(?:topology|adl|aadl|fuser|operator-core|operator-io|control-plane)";
    static FOREIGN: LazyLock<Regex> = LazyLock::new(|| {
        let patterns = [
            // topology 6.3, aadl 5.4b, core 9.1
            r"\b(?:{DOCUMENT}|core|io)(?:{GAP}|,{GAP})(?:§{GAP}?)?[0-9]+(?:\.[0-9]+)+[a-z]?\b",
            // core Q9, aadl Q12
            r"\b(?:{DOCUMENT}|core|io){GAP}Q[0-9]+\b",
            // (adl 8), fuser 5,
            r#"\b{DOCUMENT}{GAP}[0-9]{1,2}[,;)"]"#,
            // adl 6 step 3, fuser, section 2
            r"\b{DOCUMENT},?{GAP}(?:[0-9.]+{GAP})?(?:steps?|sections?|questions?|appendix){GAP}[0-9A-Z]",
            // seed 002
            r"\bseeds?{GAP}[0-9]{3}\b",
            // decisions, aadl Q3; decisions "Placement"
            r#"\bdecisions,?{GAP}(?:on{GAP})?(?:"[A-Z]|"?(?:{DOCUMENT}|core|io)\b)"#,
            // plan command, "Limits"
            r"\bplan{GAP}command,",
            r"\bplan-command\b",
            r"\[REC\]",
            // G-RST-5
            r"\bG-[A-Z]+-[0-9]+\b",
        ];
        pattern(&patterns.join("|").replace("{DOCUMENT}", DOCUMENT))
    });
    let mut found: Vec<_> =
        FOREIGN.find_iter(text).map(|found| (line_at(text, found.start()), words(found.as_str()).to_owned())).collect();
    found.dedup_by_key(|(line, _)| *line);
    found
}

/// The first line of what was found.
fn words(text: &str) -> &str {
    text.lines().next().unwrap_or_default().trim_end()
}

#[test]
fn citations_are_read_from_sentences() {
    let cited = |text: &str| -> Vec<(usize, String)> {
        citations(text).into_iter().map(|citation| (citation.line, citation.rule)).collect()
    };
    // text -> line and number of each citation
    let table: [(&str, &[(usize, &str)]); 13] = [
        ("nothing", &[]),
        ("/// Isolated (rule fusion-7).", &[(1, "fusion-7")]),
        ("// Rule a-1 says so.", &[(1, "a-1")]),
        ("(rules a-1 and b-2)", &[(1, "a-1"), (1, "b-2")]),
        ("(rules a-1, b-2 and c-33)", &[(1, "a-1"), (1, "b-2"), (1, "c-33")]),
        ("(rules a-1, b-2, and c-3) d-4", &[(1, "a-1"), (1, "b-2"), (1, "c-3")]),
        ("x\n    /// see (rules a-1,\n    /// b-2 and\n    /// c-3)", &[(2, "a-1"), (3, "b-2"), (4, "c-3")]),
        ("//! (rule\n//! a-1)", &[(2, "a-1")]),
        ("# (rule\n# a-1)", &[(2, "a-1")]),
        ("as the rules a-1 to a-3 say", &[(1, "a-1"), (1, "a-3")]),
        ("ruler a-1, a-1, overrule a-1", &[]),
        ("rule\n\nlet a-1", &[]),
        ("rule fusion 7, rule A-1, rules", &[]),
    ];
    for (text, expected) in table {
        let expected: Vec<_> = expected.iter().map(|(line, rule)| (*line, (*rule).to_owned())).collect();
        assert_eq!(cited(text), expected, "{text}");
    }
}

#[test]
fn numbers_that_stand_alone_are_mentions() {
    let text = "| a-1, b-2 |\n[c-3](c.md#c-3-title) a-1b x/d-4 e-5-f. `g-6`, h-7.";
    let found: Vec<_> = mentions(text).into_iter().map(|mention| (mention.line, mention.rule)).collect();
    let expected = [(1, "a-1"), (1, "b-2"), (2, "c-3"), (2, "g-6"), (2, "h-7")];
    assert_eq!(found, expected.map(|(line, rule)| (line, rule.to_owned())));
}

#[test]
fn documents_that_are_not_ours_are_seen() {
    let table = [
        ("(topology 6.3 step 5)", true),
        ("/// (fuser\n/// 2.5)", true),
        ("(adl 5.4b)", true),
        ("adl 6 step 2", true),
        ("see io 9.1", true),
        ("(adl 8)", true),
        ("fuser 5, aadl", true),
        ("(decisions, core Q21)", true),
        ("decisions \"core Q10\"", true),
        ("(decisions \"Placement\")", true),
        ("with the decisions on \"core Q9\"", true),
        ("(seed 002)", true),
        ("(operator-core 7)", true),
        ("operator-io 2.5", true),
        ("(plan command, \"Limits\")", true),
        ("(fuser, appendix A)", true),
        ("[REC] do", true),
        ("G-RST-5", true),
        ("the program's plan command writes", false),
        ("let decisions = decisions(&graph, core);", false),
        ("seeded with 002", false),
        ("one core 1.5 times", true),
        ("2 cores, topology of 3 nodes", false),
        ("(rules fusion-7, fusion-8 and aadl-3)", false),
        ("the topology has 3.5 copies", false),
        ("adl 42 bytes", false),
    ];
    for (text, expected) in table {
        assert_eq!(!foreign(text).is_empty(), expected, "{text}");
    }
    assert_eq!(foreign("a\n\n(adl 1.2)\n"), [(3, "adl 1.2".to_owned())]);
}
