//! Modules of a crate do not import each other in a circle.
//!
//! A module refers to another one by a path: in a `use`, or in code. Two modules are compared where their ways from the
//! root of the crate part: `a::b::c` that refers to `a::d::e` makes `b` refer to `d` inside of `a`. That a module and
//! the modules inside of it refer to each other is no circle: they are one subject.
//!
//! Left out: tests, and paths that macros write.

use crate::files::{File, assert_none, read};
use petgraph::algo::tarjan_scc;
use petgraph::graphmap::DiGraphMap;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use syn::visit::{self, Visit};
use syn::{Attribute, Item, ItemMod, UseTree};

/// Circles that remain: the folder, the modules, and why they stay.
const REMAINING: &[(&str, &[&str], &str)] = &[];

/// A module: the names from the root of its crate.
type Module = Vec<String>;

/// All modules of a crate, and where one refers to another.
#[derive(Default)]
struct Crate {
    modules: BTreeSet<Module>,
    references: Vec<(Module, Module)>,
}

/// Reads the paths of one file.
struct Paths<'a> {
    module: Module,
    found: &'a mut Vec<(Module, Module)>,
}

impl Paths<'_> {
    /// Notes a path that begins with `crate`, `self` or `super`.
    fn note(&mut self, path: &[String]) {
        let mut target: Module = match path.first().map(String::as_str) {
            Some("crate") => Vec::new(),
            Some("self" | "super") => self.module.clone(),
            _ => return,
        };
        for name in path {
            match name.as_str() {
                "crate" | "self" => {}
                "super" => {
                    target.pop();
                }
                name => target.push(name.to_owned()),
            }
        }
        self.found.push((self.module.clone(), target));
    }

    fn note_use(&mut self, before: &mut Vec<String>, tree: &UseTree) {
        match tree {
            UseTree::Path(path) => {
                before.push(path.ident.to_string());
                self.note_use(before, &path.tree);
                before.pop();
            }
            UseTree::Group(group) => group.items.iter().for_each(|tree| self.note_use(before, tree)),
            UseTree::Name(name) => self.note(&[before.as_slice(), &[name.ident.to_string()]].concat()),
            UseTree::Rename(name) => self.note(&[before.as_slice(), &[name.ident.to_string()]].concat()),
            UseTree::Glob(_) => self.note(before),
        }
    }
}

impl<'ast> Visit<'ast> for Paths<'_> {
    fn visit_item(&mut self, item: &'ast Item) {
        if !is_test(attributes(item)) {
            visit::visit_item(self, item);
        }
    }

    fn visit_item_mod(&mut self, item: &'ast ItemMod) {
        self.module.push(item.ident.to_string());
        visit::visit_item_mod(self, item);
        self.module.pop();
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        self.note_use(&mut Vec::new(), &item.tree);
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let names: Vec<_> = path.segments.iter().map(|segment| segment.ident.to_string()).collect();
        self.note(&names);
        visit::visit_path(self, path);
    }
}

fn attributes(item: &Item) -> &[Attribute] {
    match item {
        Item::Mod(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        _ => &[],
    }
}

/// Whether something is compiled for tests only.
fn is_test(attributes: &[Attribute]) -> bool {
    let is_test = |attribute: &Attribute| {
        attribute.path().is_ident("cfg")
            && attribute.parse_args::<syn::Ident>().is_ok_and(|condition| condition == "test")
    };
    attributes.iter().any(is_test)
}

/// The module of a file of a crate, from the path below its `src`.
fn module_of(path: &str) -> Module {
    let mut names: Module = path.trim_end_matches(".rs").split('/').map(str::to_owned).collect();
    if matches!(names.last().map(String::as_str), Some("mod" | "lib" | "main")) {
        names.pop();
    }
    names
}

impl Crate {
    fn add(&mut self, module: Module, text: &str) {
        let file = syn::parse_file(text).unwrap();
        let mut paths = Paths { module: module.clone(), found: &mut self.references };
        file.items.iter().for_each(|item| paths.visit_item(item));
        self.modules.insert(module);
    }

    /// The module that a path leads into.
    fn module_at(&self, path: &[String]) -> Option<&Module> {
        (0..=path.len()).rev().find_map(|length| self.modules.get(&path[..length]))
    }

    /// Groups of modules of one folder that refer to each other in a circle.
    fn circles(&self) -> BTreeSet<(String, Vec<String>)> {
        let mut folders: BTreeMap<&[String], BTreeSet<(&str, &str)>> = BTreeMap::new();
        for (from, path) in &self.references {
            let (Some(from), Some(to)) = (self.module_at(from), self.module_at(path)) else { continue };
            let common = from.iter().zip(to).take_while(|(one, other)| one == other).count();
            if let (Some(one), Some(other)) = (from.get(common), to.get(common)) {
                folders.entry(&from[..common]).or_default().insert((one, other));
            }
        }
        let mut circles = BTreeSet::new();
        for (folder, edges) in folders {
            let graph = DiGraphMap::<&str, ()>::from_edges(edges);
            for mut circle in tarjan_scc(&graph).into_iter().filter(|group| group.len() > 1) {
                circle.sort_unstable();
                circles.insert((folder.join("::"), circle.into_iter().map(str::to_owned).collect()));
            }
        }
        circles
    }
}

/// The crates of the repository by the folder of their sources.
fn crates(files: &[File]) -> BTreeMap<String, Crate> {
    let mut crates: BTreeMap<String, Crate> = BTreeMap::new();
    for file in files.iter().filter(|file| file.ending() == "rs") {
        let Some((folder, path)) = file.path.split_once("/src/") else { continue };
        let is_test =
            Path::new(path).components().any(|part| part.as_os_str() == "tests") || path.ends_with("tests.rs");
        // Programs are crates of their own.
        if !is_test && !path.starts_with("bin/") {
            crates.entry(folder.to_owned()).or_default().add(module_of(path), &file.text);
        }
    }
    crates
}

#[test]
fn modules_do_not_import_each_other_in_a_circle() {
    let mut problems = Vec::new();
    let mut remaining: BTreeSet<_> =
        REMAINING.iter().map(|(place, names, _)| format!("{place}: {}", names.join(", "))).collect();
    for (folder, modules) in crates(read()) {
        for (parent, circle) in modules.circles() {
            let circle = format!("{}: {}", format!("{folder} {parent}").trim_end(), circle.join(", "));
            if !remaining.remove(&circle) {
                problems.push(circle);
            }
        }
    }
    problems.extend(remaining.into_iter().map(|circle| format!("{circle}: is listed, and no circle any more")));
    assert_none("circles of imports", problems);
}

#[test]
fn a_circle_is_seen_where_two_ways_part() {
    // files -> circles
    let table: [(&[(&str, &str)], &[&str]); 6] = [
        (&[("a.rs", "use crate::b::B;"), ("b.rs", "use crate::a;")], &[": a, b"]),
        (&[("a.rs", "use super::b::B;"), ("b.rs", "fn f() { crate::a::g() }")], &[": a, b"]),
        (&[("a.rs", "use crate::b::B;"), ("b.rs", "#[cfg(test)] mod tests { use crate::a; }")], &[]),
        (&[("x/mod.rs", "mod a; use a::A;"), ("x/a.rs", "use super::X;")], &[]),
        (
            &[("x/a.rs", "use super::b::{self, B};"), ("x/b/c.rs", "use crate::{x::a::A, y};"), ("x/b/mod.rs", "")],
            &["x: a, b"],
        ),
        (&[("a.rs", "use crate::b;"), ("b.rs", "use crate::c;"), ("c.rs", "use crate::a;")], &[": a, b, c"]),
    ];
    for (files, expected) in table {
        let mut modules = Crate::default();
        modules.add(Vec::new(), "");
        for (path, text) in files {
            modules.add(module_of(path), text);
        }
        let circles: Vec<_> =
            modules.circles().into_iter().map(|(folder, names)| format!("{folder}: {}", names.join(", "))).collect();
        assert_eq!(circles, expected, "{files:?}");
    }
}
