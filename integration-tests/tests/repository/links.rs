//! Links between documents lead somewhere.

use crate::files::{assert_none, line_at, read, root};
use crate::markdown::{Link, anchors, headings, links};
use regex::Regex;
use std::path::{Component, Path, PathBuf};
use std::sync::LazyLock;

/// What is wrong with a link of the document `from`, if anything. `read` gives the text of a file of the repository,
/// `exists` says whether there is such a file or folder.
fn problem(
    from: &str,
    link: &Link,
    exists: impl Fn(&Path) -> bool,
    read: impl Fn(&Path) -> Option<String>,
) -> Option<&'static str> {
    static RULE: LazyLock<Regex> = LazyLock::new(|| Regex::new("^[a-z]+(?:-[a-z]+)*-[0-9]+$").unwrap());
    let target = link.target.as_str();
    if target.contains("://") || target.starts_with("mailto:") {
        return None;
    }
    let (path, anchor) = target.split_once('#').map_or((target, None), |(path, anchor)| (path, Some(anchor)));
    let file = if path.is_empty() { Some(PathBuf::from(from)) } else { beside(from, path) };
    let Some(file) = file else { return Some("leaves the repository") };
    if !exists(&file) {
        return Some("there is no such file");
    }
    if RULE.is_match(&link.text) && !anchor.is_some_and(|anchor| anchor.starts_with(&format!("{}-", link.text))) {
        return Some("leads to another rule than it says");
    }
    let anchor = anchor.filter(|_| file.extension().is_some_and(|ending| ending == "md"))?;
    let is_there = read(&file).is_some_and(|text| anchors(&text).contains(anchor));
    (!is_there).then_some("the document has no such heading")
}

/// The path of `target` from the root, as a link in `from` gives it. `None` if it is outside.
fn beside(from: &str, target: &str) -> Option<PathBuf> {
    let mut path = Path::new(from).parent()?.to_owned();
    for component in Path::new(target).components() {
        match component {
            Component::ParentDir if path.pop() => {}
            Component::Normal(name) => path.push(name),
            Component::CurDir => {}
            _ => return None,
        }
    }
    Some(path)
}

#[test]
fn links_between_documents_lead_somewhere() {
    let root = root();
    let mut problems = Vec::new();
    let mut count = 0;
    for file in read().iter().filter(|file| file.ending() == "md") {
        for link in links(&file.text) {
            count += 1;
            let read = |path: &Path| std::fs::read_to_string(root.join(path)).ok();
            if let Some(problem) = problem(&file.path, &link, |path| root.join(path).exists(), read) {
                problems.push(format!("{}: {}: {problem}", file.place(link.line), link.target));
            }
        }
    }
    assert!(count > 100, "only {count} links");
    assert_none("links that lead nowhere", problems);
}

/// As comments name it, which cannot have links: (deploy/README.md, "Helm").
#[test]
fn comments_name_headings_that_there_are() {
    let place = Regex::new(r#"\b([A-Za-z/-]+\.md), "([^"]+)""#).unwrap();
    let (mut problems, mut count) = (Vec::new(), 0);
    for file in read().iter().filter(|file| file.ending() == "yaml") {
        for found in place.captures_iter(&file.text) {
            count += 1;
            let text = std::fs::read_to_string(root().join(&found[1])).unwrap_or_default();
            if !headings(&text).iter().any(|heading| heading.text == found[2]) {
                let line = line_at(&file.text, found.get(0).unwrap().start());
                problems.push(format!("{}: {}", file.place(line), &found[0]));
            }
        }
    }
    assert!(count > 5, "only {count} headings");
    assert_none("headings that there are not", problems);
}

#[test]
fn what_is_wrong_with_a_link() {
    let exists = |path: &Path| [Path::new("a/b.md"), Path::new("c.rs"), Path::new("a")].contains(&path);
    let read = |path: &Path| (path == Path::new("a/b.md")).then(|| "# Top\n\n### x-1: Title\n".to_owned());
    let (no_file, no_heading) = (Some("there is no such file"), Some("the document has no such heading"));
    // text and target of a link in a/b.md -> what is wrong
    let table = [
        ("x", "https://example.com/x.md#y", None),
        ("x", "mailto:a@b.c", None),
        ("x", "#top", None),
        ("x", "#bottom", no_heading),
        ("x", "b.md#x-1-title", None),
        ("x-1", "b.md#x-1-title", None),
        ("x-2", "b.md#x-1-title", Some("leads to another rule than it says")),
        ("x-1", "b.md", Some("leads to another rule than it says")),
        ("x", "./b.md", None),
        ("x", "b.md#x-2-title", no_heading),
        ("x", "../c.rs#L10", None),
        ("x", "../a", None),
        ("x", "c.rs", no_file),
        ("x", "../../c.rs", Some("leaves the repository")),
        ("x", "/c.rs", Some("leaves the repository")),
    ];
    for (text, target, expected) in table {
        let link = Link { text: text.to_owned(), target: target.to_owned(), line: 1 };
        assert_eq!(problem("a/b.md", &link, exists, read), expected, "[{text}]({target})");
    }
}
