//! The rules of `docs/rules` and the code that cites them belong together.
//!
//! A rule is a heading of the third level, `### fusion-7: Title`, in the chapter `docs/rules/fusion.md`.

use crate::citations::{citations, foreign, mentions};
use crate::files::{File, Place, assert_none, read};
use crate::markdown::{headings, links};
use regex::Regex;
use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::sync::LazyLock;

/// Where the chapters are.
const RULES: &str = "docs/rules/";
/// Lists the chapters, each with files that carry out rules of it.
const CHAPTERS: &str = "docs/rules/README.md";
/// How a link in [`CHAPTERS`] to a file of the code begins.
const TO_THE_ROOT: &str = "../../";
/// Files of these endings are what implements a rule.
const CODE: [&str; 3] = ["rs", "proto", "yaml"];
/// Its examples are citations of rules and documents that do not exist.
const EXAMPLES: &str = "integration-tests/tests/repository/";

/// Rules by number, and what is wrong with their headings.
#[derive(Debug, Default)]
struct Rules {
    places: BTreeMap<String, Place>,
    problems: Vec<String>,
}

impl Rules {
    fn of<'a>(chapters: impl IntoIterator<Item = &'a File>) -> Self {
        let mut rules = Self::default();
        for chapter in chapters {
            rules.read(chapter);
        }
        rules
    }

    fn read(&mut self, chapter: &File) {
        static NUMBERED: LazyLock<Regex> =
            LazyLock::new(|| Regex::new(r"^([a-z]+(?:-[a-z]+)*)-([0-9]+)(: \S)?").unwrap());
        let name = chapter.path.rsplit('/').next().and_then(|name| name.strip_suffix(".md")).unwrap_or_default();
        for heading in headings(&chapter.text) {
            let Some(parts) = NUMBERED.captures(&heading.text) else { continue };
            let place = chapter.place(heading.line);
            let (prefix, number) = (&parts[1], format!("{}-{}", &parts[1], &parts[2]));
            if heading.level != 3 || parts.get(3).is_none() || parts[2].starts_with('0') {
                self.problems.push(format!("{place}: `{}` should be `### {number}: Title`", heading.text));
            }
            if prefix != name {
                self.problems.push(format!("{place}: rule {number} stands in the chapter {name}"));
            }
            if let Some(first) = self.places.get(&number) {
                self.problems.push(format!("{place}: rule {number} stands at {first} as well"));
            } else {
                self.places.insert(number, place);
            }
        }
    }
}

fn chapters(files: &[File]) -> Rules {
    Rules::of(files.iter().filter(|file| file.path.starts_with(RULES) && file.ending() == "md"))
}

/// Files whose words are meant.
fn citing(files: &[File]) -> impl Iterator<Item = &File> {
    files.iter().filter(|file| !file.path.starts_with(EXAMPLES))
}

/// Citations of rules that do not exist. Within the rules, a number of a chapter is a citation wherever it stands.
fn dead<'a>(rules: &Rules, files: impl IntoIterator<Item = &'a File>) -> Vec<String> {
    let chapters: BTreeSet<_> = rules.places.keys().map(|number| chapter_of(number)).collect();
    let of_file = |file: &'a File| {
        let mut cited = citations(&file.text);
        if file.path.starts_with(RULES) {
            let mentioned = mentions(&file.text).into_iter();
            cited.extend(mentioned.filter(|mention| chapters.contains(chapter_of(&mention.rule))));
            cited.sort();
            cited.dedup();
        }
        let dead = cited.into_iter().filter(|citation| !rules.places.contains_key(&citation.rule));
        dead.map(|citation| format!("{}: there is no rule {}", file.place(citation.line), citation.rule))
    };
    files.into_iter().flat_map(of_file).collect()
}

/// Rules that no code cites.
fn uncited<'a>(rules: &Rules, files: impl IntoIterator<Item = &'a File>) -> Vec<String> {
    let code = files.into_iter().filter(|file| CODE.contains(&file.ending()) && !file.path.starts_with("docs/"));
    let cited: BTreeSet<_> = code.flat_map(|file| citations(&file.text)).map(|citation| citation.rule).collect();
    let uncited = rules.places.iter().filter(|(number, _)| !cited.contains(*number));
    uncited.map(|(number, place)| format!("{place}: no code cites rule {number}")).collect()
}

/// The chapter that a rule stands in.
fn chapter_of(number: &str) -> &str {
    number.rsplit_once('-').map_or(number, |(chapter, _)| chapter)
}

/// What is wrong with the files that the list of chapters names. A line of it begins with a link to a chapter; each
/// file that it links to has to cite a rule of that chapter.
fn misplaced(list: &File, rules: &Rules, files: &[File]) -> Vec<String> {
    let mut problems = Vec::new();
    let mut without_code: BTreeSet<&str> = rules.places.keys().map(|number| chapter_of(number)).collect();
    let links = links(&list.text);
    for line in links.chunk_by(|a, b| a.line == b.line) {
        let Some(chapter) = line[0].target.strip_suffix(".md").filter(|path| !path.contains('/')) else { continue };
        for (link, path) in line.iter().filter_map(|link| Some((link, link.target.strip_prefix(TO_THE_ROOT)?))) {
            let cites =
                |file: &File| citations(&file.text).iter().any(|citation| chapter_of(&citation.rule) == chapter);
            if files.iter().any(|file| file.path == path && cites(file)) {
                without_code.remove(chapter);
            } else {
                problems.push(format!("{}: {path} cites no rule of the chapter {chapter}", list.place(link.line)));
            }
        }
    }
    problems.extend(without_code.iter().map(|chapter| format!("{}: no file of the chapter {chapter}", list.path)));
    problems
}

#[test]
fn rules_are_numbered_once_in_their_chapter() {
    assert_none("headings of rules", chapters(read()).problems);
}

#[test]
fn citations_lead_to_rules() {
    let files = read();
    let rules = chapters(files);
    let count: usize = citing(files).map(|file| citations(&file.text).len()).sum();
    // Past the harness, which shows what a test prints only when it fails.
    let _ = writeln!(std::io::stderr().lock(), "{} rules, {count} citations", rules.places.len());
    assert!(rules.places.len() > 100, "only {} rules", rules.places.len());
    assert_none("citations that lead nowhere", dead(&rules, citing(files)));
}

#[test]
fn code_cites_every_rule() {
    let files = read();
    assert_none("rules without code", uncited(&chapters(files), citing(files)));
}

#[test]
fn the_list_of_chapters_names_files_that_cite_them() {
    let files = read();
    let list = files.iter().find(|file| file.path == CHAPTERS).unwrap();
    assert_none("files in the list of chapters", misplaced(list, &chapters(files), files));
}

#[test]
fn documents_that_are_not_part_of_the_project_are_not_cited() {
    let files = read();
    let mut problems = Vec::new();
    for file in citing(files) {
        for (line, words) in foreign(&file.text) {
            problems.push(format!("{}: {words}", file.place(line)));
        }
    }
    assert_none("citations of documents that are not part of the project", problems);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str, text: &str) -> File {
        File { path: path.to_owned(), text: text.to_owned() }
    }

    #[test]
    fn what_is_wrong_with_headings_is_told_with_the_place() {
        let chapters = [
            file("docs/rules/a.md", "# A\n\n### a-1: One\n\n### a-1: Again\n\n### b-2: Elsewhere\n"),
            file("docs/rules/b.md", "## b-1: Level\n\n### b-3 No colon\n\n### b-04: Zero\n\n### Words\n"),
        ];
        let rules = Rules::of(&chapters);
        let numbers: Vec<_> = rules.places.keys().map(String::as_str).collect();
        assert_eq!(numbers, ["a-1", "b-04", "b-1", "b-2", "b-3"]);
        let expected = [
            "docs/rules/a.md:5: rule a-1 stands at docs/rules/a.md:3 as well",
            "docs/rules/a.md:7: rule b-2 stands in the chapter a",
            "docs/rules/b.md:1: `b-1: Level` should be `### b-1: Title`",
            "docs/rules/b.md:3: `b-3 No colon` should be `### b-3: Title`",
            "docs/rules/b.md:5: `b-04: Zero` should be `### b-04: Title`",
        ];
        assert_eq!(rules.problems, expected);
    }

    #[test]
    fn files_that_cite_no_rule_of_the_chapter_they_are_listed_for_are_told_with_the_place() {
        let files = [
            file("docs/rules/a.md", "### a-1: One\n"),
            file("docs/rules/b.md", "### b-1: One\n"),
            file("x.rs", "// (rule a-1)\n"),
        ];
        let list =
            "[a.md](a.md): [x](../../x.rs), [y](../../y.rs)\n\n[b.md](b.md): [x](../../x.rs)\n\n[a](../../a.md)\n";
        let expected = [
            "docs/rules/README.md:1: y.rs cites no rule of the chapter a",
            "docs/rules/README.md:3: x.rs cites no rule of the chapter b",
            "docs/rules/README.md: no file of the chapter b",
        ];
        assert_eq!(misplaced(&file(CHAPTERS, list), &Rules::of(&files[..2]), &files), expected);
    }

    #[test]
    fn dead_citations_and_rules_without_code_are_told_with_the_place() {
        let files = [
            file(
                "docs/rules/a.md",
                "### a-1: One\n\n### a-2: Two\n\nAs a-1 and a-9, in utf-8; rule b-1.\n\n### a-3: Three\n",
            ),
            file("x.rs", "// (rules a-1\n// and a-4)\n"),
            file("y.toml", "# (rule a-2)\n"),
            file("docs/z.yaml", "# (rule a-3)\n"),
        ];
        let rules = Rules::of(&files[..1]);
        let expected = [
            "docs/rules/a.md:5: there is no rule a-9",
            "docs/rules/a.md:5: there is no rule b-1",
            "x.rs:2: there is no rule a-4",
        ];
        assert_eq!(dead(&rules, &files), expected);
        let expected = ["docs/rules/a.md:3: no code cites rule a-2", "docs/rules/a.md:7: no code cites rule a-3"];
        assert_eq!(uncited(&rules, &files), expected);
    }
}
