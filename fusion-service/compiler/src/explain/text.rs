//! Writes an account as text for people who operate jobs.
//!
//! Knows: the account. Must not know: the job that it is about.

use super::account::{Account, CauseAccount, CauseEffect, DocumentChange, ElementGroup, RegionAccount};
use super::names::ranges;
use crate::error::excerpt;
use crate::phrase::{counted, listed};
use crate::plan::{Fate, Reason};
use crate::topology::ChannelCount;
use std::fmt::{self, Display, Formatter, Write as _};

/// Groups of PEs that are shown.
const GROUPS: usize = 200;
/// Rows of a table that are shown.
const ROWS: usize = 100;
/// Changes of a group that are shown.
const CHANGES: usize = 5;

impl Display for Account {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        self.head(f)?;
        self.regions(f)?;
        self.host_pools(f)?;
        self.consistent_regions(f)?;
        self.causes(f)?;
        self.elements(f)
    }
}

impl Account {
    fn head(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let totals = &self.totals;
        writeln!(f, "Application  {}", excerpt(&self.application))?;
        writeln!(f, "Job          {} ({})", excerpt(&self.job_name), self.job_id)?;
        let operators = counted(totals.operators, "operator");
        let written = match totals.operators_as_written {
            same if same == totals.operators => String::new(),
            written => format!(" ({written} as written)"),
        };
        let connections = counted(totals.connections, "connection");
        let between = totals.connections_between_pes;
        writeln!(f, "Size         {operators}{written}, {connections}, {between} of them between PEs")?;
        let pes = counted(totals.processing_elements, "PE");
        writeln!(f, "             {pes}, {} of AADL", bytes(totals.aadl_bytes))?;
        let kind = match self.fusion.r#type {
            "noChannelInfluence" => String::new(),
            other => format!(", {other}"),
        };
        writeln!(f, "Fusion       {}{kind}: {pes}", self.fusion.mode)?;
        for sentence in &self.fusion.why {
            writeln!(f, "             {sentence}")?;
        }
        if let Some(resize) = &self.resize {
            let parts = [
                (resize.kept, "kept"),
                (resize.kept_unobservable, "kept (changed unobservably)"),
                (resize.restarted, "restarted"),
                (resize.added, "added"),
                (resize.removed, "removed"),
            ];
            let parts: Vec<String> =
                parts.iter().filter(|(n, _)| *n > 0).map(|(n, what)| format!("{n} {what}")).collect();
            writeln!(f, "Resize       PEs: {}", parts.join(", "))?;
            let (added, removed) = (resize.added_operators, resize.removed_operators);
            writeln!(
                f,
                "             operators: {added} new, {removed} gone, {} see a change",
                resize.changed_operators
            )?;
        }
        for (at, warning) in self.warnings.iter().take(ROWS).enumerate() {
            let label = if at == 0 { "Warnings" } else { "" };
            writeln!(f, "{label:<13}{}: {}", warning.reason, warning.message)?;
        }
        Ok(())
    }

    fn regions(&self, f: &mut Formatter<'_>) -> fmt::Result {
        if self.regions.is_empty() {
            return Ok(());
        }
        let mut table = TextTable::new(["REGION", "WIDTH", "CHANNELS", "WIDTH FROM", "SPLITTERS", "NOTES"]);
        for region in &self.regions {
            let width = match region.width_before {
                Some(before) if before != region.width => format!("{before} -> {}", region.width),
                _ => region.width.to_string(),
            };
            let row = [
                region.name.clone(),
                width,
                region.channels.to_string(),
                origin(region),
                splitters(region),
                notes(region),
            ];
            table.row(row);
        }
        writeln!(f, "\nParallel regions")?;
        table.write(f)
    }

    fn host_pools(&self, f: &mut Formatter<'_>) -> fmt::Result {
        if self.host_pools.is_empty() {
            return Ok(());
        }
        let mut table = TextTable::new(["POOL", "INDEX", "SIZE", "OPERATORS", "HOSTS", "TAGS", "NOTES"]);
        for pool in &self.host_pools {
            let first = |all: &[String]| listed(&all[..all.len().min(4)], all.len());
            table.row([
                pool.name.clone(),
                pool.index.to_string(),
                pool.size.map_or_else(|| "-".to_owned(), |size| size.to_string()),
                pool.operators.to_string(),
                first(&pool.hosts),
                first(&pool.tags),
                if pool.exclusive { "exclusive" } else { "" }.to_owned(),
            ]);
        }
        writeln!(f, "\nHost pools")?;
        table.write(f)
    }

    fn consistent_regions(&self, f: &mut Formatter<'_>) -> fmt::Result {
        if self.consistent_regions.is_empty() {
            return Ok(());
        }
        let mut table = TextTable::new(["INDEX", "TRIGGER", "OPERATORS", "STARTS AT", "PES"]);
        for region in &self.consistent_regions {
            let trigger = match region.trigger {
                "periodic" => format!("every {} s", region.period),
                other => other.to_owned(),
            };
            table.row([
                region.index.to_string(),
                trigger,
                region.operators.to_string(),
                region.starts.clone(),
                ranges(region.pes.iter().copied()),
            ]);
        }
        writeln!(f, "\nConsistent regions")?;
        table.write(f)
    }

    fn causes(&self, f: &mut Formatter<'_>) -> fmt::Result {
        if self.causes.is_empty() {
            return Ok(());
        }
        let mut table = TextTable::new(["EFFECT", "CONSTRAINT", "IN THE ADL", "OPERATORS", "PES", "VALUES"]);
        for cause in &self.causes {
            table.row([
                effect(cause.effect).to_owned(),
                cause.meaning.to_owned(),
                cause.attribute.to_owned(),
                cause.operators.to_string(),
                cause.pes.to_string(),
                listed(&cause.values[..cause.values.len().min(4)], cause.value_count),
            ]);
        }
        writeln!(f, "\nWhat decided PEs")?;
        table.write(f)
    }

    fn elements(&self, f: &mut Formatter<'_>) -> fmt::Result {
        writeln!(f, "\nPEs")?;
        let removed = self.removed.iter().map(|removed| ranges(removed.ids.iter().copied()));
        let ids: Vec<String> =
            self.processing_elements.iter().map(|group| ranges(group.ids.iter().copied())).chain(removed).collect();
        let width = ids.iter().map(|ids| ids.chars().count()).max().unwrap_or(0).min(24);
        let shown = ids.iter().zip(&self.processing_elements).take(GROUPS);
        for (ids, group) in shown {
            self.element(f, ids, width, group)?;
        }
        self.left_out(f, self.processing_elements.iter().map(|group| group.ids.len()))?;
        let gone = ids.iter().skip(self.processing_elements.len()).zip(&self.removed);
        for (ids, removed) in gone.take(GROUPS) {
            let mut lines = Vec::new();
            if let Some(each) = removed.operators_each {
                let names = listed(&removed.operators, removed.operator_entries);
                lines.push(("removed", contents(removed.ids.len(), &counted(each, "operator"), &names)));
            }
            // If the operators are listed, the reason that they are gone adds nothing.
            if lines.is_empty() || !matches!(removed.reason, Some(Reason::NoLongerExist(_))) {
                let label = if lines.is_empty() { "removed" } else { "because" };
                lines.push((label, Reason::describe(removed.reason.as_ref())));
            }
            write_lines(f, ids, width, lines)?;
        }
        self.left_out(f, self.removed.iter().map(|removed| removed.ids.len()))
    }

    fn left_out(&self, f: &mut Formatter<'_>, sizes: impl Iterator<Item = usize>) -> fmt::Result {
        match sizes.skip(GROUPS).sum() {
            0 => Ok(()),
            more => writeln!(f, "  and {more} more; the JSON form has them all"),
        }
    }

    fn element(&self, f: &mut Formatter<'_>, ids: &str, width: usize, group: &ElementGroup) -> fmt::Result {
        let mut lines: Vec<(&str, String)> = Vec::new();
        let operators = match (group.operators_each, group.new_operators_each) {
            (all, 0) => counted(all, "operator"),
            (all, new) if all == new => counted(all, "new operator"),
            (all, new) => format!("{}, {new} of them new", counted(all, "operator")),
        };
        let what = contents(group.ids.len(), &operators, &listed(&group.operators, group.operator_entries));
        lines.push((group.fate.map_or("", fate), what));
        if group.fate == Some(Fate::Added) && group.new_operators_each < group.operators_each {
            lines.push(("because", "operators move here from other PEs".to_owned()));
        }
        // PEs that go on are not explained again.
        let stays = matches!(group.fate, Some(Fate::Kept | Fate::KeptUnobservable));
        for cause in group.causes.iter().filter(|_| !stays) {
            lines.push((effect(cause.effect), self::cause(cause)));
        }
        let filled = matches!(group.fate, None | Some(Fate::Added)) && group.operators_each > 1;
        if self.fusion.wanted.is_some() && filled && !self.decided(group) {
            lines.push(("fill", "along connections, up to an even share of the operators".to_owned()));
        }
        if !group.placement.is_empty() && !stays {
            lines.push(("runs on", group.placement.join(", ")));
        }
        if !group.restartable && !stays {
            lines.push(("note", "not restartable".to_owned()));
        }
        changes(group, &mut lines);
        write_lines(f, ids, width, lines)
    }

    /// Whether constraints say already why the operators are together.
    fn decided(&self, group: &ElementGroup) -> bool {
        let together = group.causes.iter().filter(|cause| cause.effect == CauseEffect::Together);
        together.map(|cause| cause.operators / group.ids.len().max(1)).any(|each| each >= group.operators_each)
    }
}

/// `1 operator: Src`, or `3 PEs with 1 operator each: Work[0-2]`.
fn contents(pes: usize, operators: &str, names: &str) -> String {
    if pes == 1 { format!("{operators}: {names}") } else { format!("{pes} PEs with {operators} each: {names}") }
}

/// Writes lines behind ids. A label that repeats is left out.
fn write_lines(f: &mut Formatter<'_>, mut ids: &str, width: usize, lines: Vec<(&str, String)>) -> fmt::Result {
    if ids.chars().count() > width {
        writeln!(f, "  {ids}")?;
        ids = "";
    }
    let mut last = None;
    for (label, text) in lines {
        let line = match last.replace(label) {
            _ if label.is_empty() => text,
            Some(same) if same == label => format!("{:<9}  {text}", ""),
            _ => format!("{label:<9}  {text}"),
        };
        writeln!(f, "  {:<width$}  {line}", std::mem::take(&mut ids))?;
    }
    Ok(())
}

fn fate(fate: Fate) -> &'static str {
    match fate {
        Fate::Added => "added",
        Fate::Kept | Fate::KeptUnobservable => "kept",
        Fate::Restarted => "restarted",
    }
}

fn effect(effect: CauseEffect) -> &'static str {
    match effect {
        CauseEffect::Together => "together",
        CauseEffect::Alone => "alone",
        CauseEffect::Apart => "apart",
    }
}

fn cause(cause: &CauseAccount) -> String {
    let mut text = format!("{} ({})", cause.meaning, cause.attribute);
    if cause.value_count > 0 {
        let values = &cause.values[..cause.values.len().min(4)];
        let _ = write!(text, " {}", listed(values, cause.value_count));
    }
    text
}

/// Changes of a group; neighbouring ones at the same place share a line.
fn changes(group: &ElementGroup, lines: &mut Vec<(&'static str, String)>) {
    if group.not_compared {
        let because = group.reason.as_ref().unwrap_or(&Reason::DocumentChanged);
        lines.push(("because", format!("{because} (documents not compared: there is too much of them)")));
        return;
    }
    if group.changes.is_empty() {
        if let Some(reason) = group.reason.as_ref().filter(|_| group.fate == Some(Fate::Restarted)) {
            lines.push(("because", reason.to_string()));
        }
        return;
    }
    // Unobservable changes are shown if there are no observable ones.
    let observable = group.changes.iter().any(|change| change.observable);
    let label = if observable { "because" } else { "although" };
    let mut shown: Vec<(&str, Vec<String>)> = Vec::new();
    for change in group.changes.iter().filter(|change| change.observable || !observable) {
        match shown.last_mut() {
            Some((place, whats)) if *place == change.place => whats.push(what(change)),
            _ => shown.push((&change.place, vec![what(change)])),
        }
    }
    let mut more = group.change_count - group.changes.len();
    more += shown.iter().skip(CHANGES).map(|(_, whats)| whats.len()).sum::<usize>();
    for (place, whats) in shown.into_iter().take(CHANGES) {
        let place = if place.is_empty() { String::new() } else { format!("{place}: ") };
        let unseen = if observable { "" } else { ", which a running PE does not read" };
        lines.push((label, format!("{place}{}{unseen}", whats.join(", "))));
    }
    if more > 0 {
        lines.push((label, format!("and {}", counted(more, "more change"))));
    }
}

fn what(change: &DocumentChange) -> String {
    let mut text = change.what.clone();
    let value = |value: &Option<String>| value.as_ref().map_or_else(|| "none".to_owned(), String::clone);
    if change.before != change.after {
        let _ = write!(text, " {} -> {}", value(&change.before), value(&change.after));
    }
    let named = |all: &[String]| {
        let more = if all.len() > 3 { ", ..." } else { "" };
        format!("{}{more}", all[..all.len().min(3)].join(", "))
    };
    match (change.added.as_slice(), change.removed.as_slice()) {
        ([], []) => {}
        (new, []) => _ = write!(text, " (new: {})", named(new)),
        ([], gone) => _ = write!(text, " (gone: {})", named(gone)),
        (new, gone) => _ = write!(text, " (new: {}; gone: {})", named(new), named(gone)),
    }
    text
}

fn origin(region: &RegionAccount) -> String {
    let name = region.origin.name.as_deref().unwrap_or_default();
    match (region.origin.kind, region.origin.submitted) {
        ("job", _) => format!("the job, for {name}"),
        ("adl", _) => "the ADL".to_owned(),
        ("submissionValue", _) => format!("submission-time value {name}"),
        (_, Some(submitted)) => format!("a resize; {submitted} when submitted"),
        (_, None) => "a resize".to_owned(),
    }
}

fn splitters(region: &RegionAccount) -> String {
    let kinds: Vec<String> = region
        .splitters
        .iter()
        .take(4)
        .map(|splitter| {
            let kind = match splitter.kind {
                "roundRobin" => "round robin".to_owned(),
                "hash" => format!("hash by {}", splitter.attributes.join(", ")),
                other => other.to_owned(),
            };
            if region.splitters.len() > 1 { format!("port {}: {kind}", splitter.input_port) } else { kind }
        })
        .collect();
    match region.splitters.len().saturating_sub(kinds.len()) {
        0 => kinds.join("; "),
        more => format!("{}; and {more} more", kinds.join("; ")),
    }
}

fn notes(region: &RegionAccount) -> String {
    let mut notes = Vec::new();
    if let Some(outer) = &region.nested_in {
        notes.push(format!("inside {outer}"));
    }
    if region.channel_count == ChannelCount::Ignored {
        notes.push("number of channels ignored".to_owned());
    }
    if region.channels_have_own_pes {
        notes.push("channels have PEs of their own".to_owned());
    }
    if region.touches_consistent_region {
        notes.push("touches a consistent region".to_owned());
    }
    notes.join("; ")
}

fn bytes(bytes: u64) -> String {
    const UNITS: [&str; 4] = ["KiB", "MiB", "GiB", "TiB"];
    let (mut value, mut unit) = (bytes as f64, "bytes");
    for next in UNITS {
        if value < 1024.0 {
            break;
        }
        (value, unit) = (value / 1024.0, next);
    }
    if unit == "bytes" { format!("{bytes} bytes") } else { format!("{value:.1} {unit}") }
}

/// Columns, as wide as they need to be.
struct TextTable<const COLUMNS: usize> {
    rows: Vec<[String; COLUMNS]>,
}

impl<const COLUMNS: usize> TextTable<COLUMNS> {
    fn new(head: [&str; COLUMNS]) -> Self {
        Self { rows: vec![head.map(str::to_owned)] }
    }

    fn row(&mut self, row: [String; COLUMNS]) {
        self.rows.push(row);
    }

    fn write(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let shown = self.rows.iter().take(ROWS + 1);
        let mut widths = [0; COLUMNS];
        for row in shown.clone() {
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = (*width).max(cell.chars().count());
            }
        }
        // An empty column is not shown.
        let used: [bool; COLUMNS] = std::array::from_fn(|at| self.rows.iter().skip(1).any(|row| !row[at].is_empty()));
        for row in shown {
            let mut line = String::new();
            for ((cell, width), _) in row.iter().zip(widths).zip(used).filter(|(_, used)| *used) {
                let _ = write!(line, "  {cell:<width$}");
            }
            writeln!(f, "{}", line.trim_end())?;
        }
        match self.rows.len().saturating_sub(ROWS + 1) {
            0 => Ok(()),
            more => writeln!(f, "  and {more} more"),
        }
    }
}
