//! Is the code written as CONTRIBUTING says, where neither the compiler nor clippy asks? Imports, and the width of
//! comments.

use crate::files::{self, File, assert_none, line_at};
use regex::Regex;
use std::sync::LazyLock;

/// Most columns of a comment.
const COLUMNS: usize = 120;

/// A whole `use`, and the blank lines and the `use` behind it, if there is one.
static USE: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"(?m)^[ ]*use ([^;]+);\n(\n+[ ]*use )?").unwrap());

/// All Rust code of the repository.
fn sources() -> impl Iterator<Item = &'static File> {
    files::read().iter().filter(|file| file.ending() == "rs")
}

#[test]
fn one_use_per_module_in_one_block() {
    let mut problems = Vec::new();
    for file in sources() {
        let mut from = 0;
        while let Some(found) = USE.captures_at(&file.text, from) {
            let (whole, tree) = (found.get(0).unwrap(), found.get(1).unwrap());
            let place = file.place(line_at(&file.text, tree.start()));
            if tree.as_str().matches('{').count() > 1 {
                problems.push(format!("{place}: braces within braces"));
            }
            if found.get(2).is_some() {
                problems.push(format!("{place}: a blank line behind it, before the next use"));
            }
            from = if found.get(2).is_some() { tree.end() } else { whole.end() };
        }
    }
    assert_none("imports in another style", problems);
}

#[test]
fn comments_are_not_wider_than_code() {
    let mut problems = Vec::new();
    for file in sources() {
        for (number, line) in (1..).zip(file.text.lines()) {
            if line.trim_start().starts_with("//") && line.chars().count() > COLUMNS {
                problems.push(format!("{}: {} columns", file.place(number), line.chars().count()));
            }
        }
    }
    assert_none("comments that are too wide", problems);
}

#[test]
fn command_line_and_server_stand_side_by_side() {
    let mut problems = Vec::new();
    for (folder, other) in
        [("fusion-service/src/command/", "crate::server"), ("fusion-service/src/server/", "crate::command")]
    {
        for file in sources().filter(|file| file.path.starts_with(folder)) {
            problems
                .extend(file.text.match_indices(other).map(|(at, _)| file.place(line_at(&file.text, at)).to_string()));
        }
    }
    assert_none("imports between command and server", problems);
}

#[test]
fn a_use_is_seen_with_what_follows() {
    for (text, tree, blank) in [
        ("use a::b;\nuse c;\n", "a::b", false),
        ("    use a::{b, c};\n\n    use d;\n", "a::{b, c}", true),
        ("use a::{\n    b,\n};\n\nfn f() {}\n", "a::{\n    b,\n}", false),
    ] {
        let found = USE.captures(text).unwrap();
        assert_eq!((found.get(1).unwrap().as_str(), found.get(2).is_some()), (tree, blank));
    }
}
