//! The page about a run: what was tried, by which oracle what failed, and how to run that again.

use super::{DeclarationOptions, DeclarationOutcome, Oracle};
use crate::soak::report::{run, table};
use anyhow::Result;
use std::fmt::Write as _;

/// The page, in Markdown.
///
/// # Errors
/// When it cannot be written.
pub fn page(options: &DeclarationOptions, outcome: &DeclarationOutcome) -> Result<String> {
    let mut page = String::from("# Declarations\n\n");
    page.push_str(
        "Each field that a user can write is set, changed, made invalid, corrected and removed, alone and with others at random; regions are \
         resized, PEs restarted, objects deleted and spoilt, jobs deleted and created again. The fields come from the schemas. Every sequence has a \
         namespace of its own, on a real control plane with kwok's nodes.\n\n",
    );
    let result = match (outcome.failures.len(), outcome.broken.len()) {
        (0, 0) => "nothing failed".to_owned(),
        (failed, broken) => format!("**{failed} sequences failed**, {broken} could not be run"),
    };
    writeln!(page, "Result: {result}.\n")?;
    run(&mut page, &command(options), &outcome.commit, outcome.took, Vec::new())?;

    page.push_str("\n## What was tried\n\n");
    let ([alone, random, effects], [planned, all_effects]) = (outcome.run, outcome.planned);
    let total = alone + random + effects;
    let rows = [
        ("fields", outcome.fields.to_string()),
        ("sequences of one field", format!("{alone} of {planned}")),
        ("random sequences of many fields", random.to_string()),
        ("fields whose effect was looked for", format!("{effects} of {all_effects}")),
        ("passed", total.saturating_sub(outcome.failures.len() + outcome.broken.len()).to_string()),
        ("failed", outcome.failures.len().to_string()),
        ("could not be run", outcome.broken.len().to_string()),
    ];
    table(&mut page, ["", "number"], rows.into_iter().map(|(name, value)| [name.to_owned(), value]))?;

    page.push_str("\n## Failures by oracle\n\n");
    let count = |oracle| outcome.failures.values().filter(|(_, failure)| failure.oracle == oracle).count();
    table(
        &mut page,
        ["", "failures"],
        Oracle::ALL.into_iter().map(|oracle| [oracle.to_string(), count(oracle).to_string()]),
    )?;

    if !outcome.failures.is_empty() {
        page.push_str("\n## What failed\n\nA sequence is run again by `cargo soak declarations --sequence '<name, or the JSON below>'`.\n");
        for (name, (text, failure)) in &outcome.failures {
            writeln!(
                page,
                "\n### {name}\n\n{}, after {} steps: {}\n",
                failure.oracle,
                failure.after,
                cut(&failure.what)
            )?;
            writeln!(page, "```json\n{text}\n```")?;
        }
    }
    if !outcome.broken.is_empty() {
        page.push_str("\n## What could not be run\n\n");
        let rows = outcome.broken.iter().map(|(name, error)| [name.clone(), cut(error).replace('|', "\\|")]);
        table(&mut page, ["sequence", "why"], rows)?;
    }
    if !outcome.excepted.is_empty() {
        page.push_str("\n## Fields without an effect that a run can see\n\n");
        table(&mut page, ["field", "why"], outcome.excepted.iter().map(|(name, why)| [name.clone(), why.clone()]))?;
    }
    Ok(page)
}

/// As much of a text as somebody reads.
fn cut(text: &str) -> String {
    let cut: String = text.chars().take(1_500).collect();
    cut.replace('\n', " ")
}

fn command(options: &DeclarationOptions) -> String {
    let minutes = options.duration.as_secs_f64() / 60.0;
    let mut command =
        format!("cargo soak declarations --minutes {minutes} --seed {} --at-once {}", options.seed, options.at_once);
    if let Some(only) = &options.only {
        write!(command, " --sequence '{only}'").unwrap_or_default();
    }
    command
}

#[cfg(test)]
mod tests {
    use super::super::{DeclarationOptions, DeclarationOutcome, Failure, Oracle};
    use super::page;
    use std::time::Duration;

    #[test]
    fn the_page_says_what_failed_and_how_to_run_it_again() {
        let options = DeclarationOptions { duration: Duration::from_secs(60), seed: 3, at_once: 6, only: None };
        let mut outcome = DeclarationOutcome { run: [3, 1, 2], planned: [9, 4], ..DeclarationOutcome::default() };
        let failure = Failure { oracle: Oracle::Recovery, after: 2, what: "it stays Failed".to_owned() };
        outcome.failures.insert("image/changed".to_owned(), ("{\"name\":1}".to_owned(), failure));
        let page = page(&options, &outcome).unwrap();
        for part in [
            "**1 sequences failed**",
            "`cargo soak declarations --minutes 1 --seed 3 --at-once 6`",
            "| sequences of one field | 3 of 9 |",
            "| passed | 5 |",
            "| an error is left by correcting it | 1 |",
            "| same objects as a fresh job | 0 |",
            "### image/changed",
            "it stays Failed",
            "{\"name\":1}",
        ] {
            assert!(page.contains(part), "{part} is not in\n{page}");
        }
    }
}
