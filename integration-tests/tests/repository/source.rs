//! Is the code written as CONTRIBUTING says, where neither the compiler nor clippy asks? Imports, the width of
//! comments, and tables of modules.

use crate::files::{self, File, assert_none, line_at};
use regex::Regex;
use std::sync::LazyLock;

/// Most columns of a comment.
const COLUMNS: usize = 120;

/// A whole `use`, and the blank lines and the `use` behind it, if there is one.
static USE: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"(?m)^[ ]*use ([^;]+);\n(\n+[ ]*use )?").unwrap());

/// A row about a module in the page of a folder.
static ROW: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"(?m)^//! [|*] \[`(\w+)`\]").unwrap());

/// A module of a folder.
static MODULE: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"(?m)^(?:pub(?:\([a-z: ]+\))? )?mod (\w+);").unwrap());

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

/// The modules of a folder that its page does not name, if it has a row for another one.
fn unnamed(text: &str) -> Vec<&str> {
    let modules = MODULE.captures_iter(text).map(|found| found.get(1).unwrap().as_str());
    let modules: Vec<_> = modules.filter(|module| *module != "tests").collect();
    let page: String = text.split_inclusive('\n').filter(|line| line.starts_with("//!")).collect();
    if !ROW.captures_iter(&page).any(|row| modules.contains(&row.get(1).unwrap().as_str())) {
        return Vec::new();
    }
    modules.into_iter().filter(|module| !page.contains(&format!("`{module}`"))).collect()
}

#[test]
fn a_table_of_modules_has_all_of_them() {
    let mut problems = Vec::new();
    for file in sources().filter(|file| ["mod.rs", "lib.rs"].iter().any(|name| file.path.ends_with(name))) {
        problems.extend(unnamed(&file.text).into_iter().map(|module| format!("{}: {module}", file.path)));
    }
    assert_none("modules that the page of their folder does not name", problems);
}

#[test]
fn a_module_that_a_table_lacks_is_seen() {
    let page = "//! | Module | What it is |\n//! |---|---|\n//! | [`one`], [`two`] | this and that |\n";
    for (page, modules, expected) in [
        (page, "mod one;\npub(crate) mod two;\n#[cfg(test)]\nmod tests;\n", vec![]),
        (page, "mod one;\npub(in super::super) mod three;\nmod two;\n", vec!["three"]),
        ("//! * [`one`] - this;\n", "mod one;\nmod two;\n", vec!["two"]),
        ("//! | [`Type`] | no module |\n", "mod one;\n", vec![]),
        ("//! No table.\n", "mod one;\n", vec![]),
    ] {
        let text = format!("{page}\n{modules}");
        assert_eq!(unnamed(&text), expected, "{text}");
    }
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
