//! What a plan costs is counted, whatever an application repeats: looks at the budget, and the bytes that a job says it
//! takes.

use super::super::assemble::regions_touching_consistent_ones;
use super::super::change::{Predecessor, Prior};
use super::super::consistent::consistent_regions;
use super::super::element::pod_needs;
use super::super::{Compiled, FusionOption, JobState, Policy, Request, Source, resize, submit};
use super::{request, source, submitted};
use crate::aadl::{WriteError, referring_to_distant_operators};
use crate::budget::{Budget, Cancellation, GiveWay, Limits};
use crate::elements::Unchanged;
use crate::error::Error;
use crate::topology::{ChannelCount, Configuration, Generations, changes};
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use streams_test_support::application::Sketch;

/// Counts how often somebody asks whether the work should go on.
#[derive(Debug, Default)]
struct Looks(AtomicUsize);

impl Cancellation for Looks {
    fn is_cancelled(&self) -> bool {
        self.0.fetch_add(1, Ordering::Relaxed);
        false
    }
}

/// How often `work` looks at its budget. It ends when nobody waits any more.
#[track_caller]
fn looks<T>(work: impl Fn(&Budget) -> Result<T, Error>) -> usize {
    let looks = Arc::new(Looks::default());
    let budget = Budget { cancellation: Some(Arc::<Looks>::clone(&looks)), ..Budget::default() };
    work(&budget).map(|_| ()).expect("nothing is wrong");
    assert_eq!(work(&Budget::cancelled()).map(|_| ()), Err(Error::Cancelled));
    looks.0.load(Ordering::Relaxed)
}

/// Notes how large new jobs are said to be.
#[derive(Debug, Default)]
struct Growth(Mutex<Vec<(u64, u64)>>);

impl GiveWay for Growth {
    fn give_way(&self) {}

    fn grows(&self, before: u64, now: u64) {
        self.0.lock().push((before, now));
    }
}

#[test]
fn a_resize_says_how_large_the_new_job_is_going_to_be() {
    let growth = Arc::new(Growth::default());
    let budget = Budget { give_way: Some(Arc::<Growth>::clone(&growth)), ..Budget::default() };
    let sketch = Sketch::row(&["S", "P", "T"]).parallel("P", 2);
    let job = submit(&source(&sketch), &request(FusionOption::Legacy), &budget).unwrap();
    assert!(growth.0.lock().is_empty());
    let wide = resize(&job, &[("P".to_owned(), 100)], Policy::Sticky, &JobState::default(), &budget).unwrap();
    let (before, now) = (job.topology(), wide.topology());
    assert_eq!((before.operators.len(), now.operators.len()), (4, 102));
    let lengths = [(before.operators.len(), now.operators.len()), (before.connections.len(), now.connections.len())];
    let lengths = lengths.map(|(before, now)| (before as u64, now as u64));
    assert_eq!(*growth.0.lock(), lengths);
}

#[test]
fn variables_that_repeat_are_gone_through_once_per_operator() {
    let variables = "<envVar name='X' value='1'/>".repeat(10_000);
    let sketch = Sketch::row(&["S", "P"]).parallel("P", 100).of("P").with(&format!("<envVars>{variables}</envVars>"));
    let job = submitted(&sketch, FusionOption::Legacy);
    let looks = looks(|budget| pod_needs(job.elements(), job.elements().pes(), budget));
    assert!(looks < 5, "{looks}");
}

#[test]
fn locations_that_repeat_are_gone_through_once_per_operator() {
    let ids = "<coLocation colocId='x'/>".repeat(5_000) + &"<exLocation exlocId='y'/>".repeat(5_000);
    let job = submitted(&Sketch::row(&["S", "P"]).parallel("P", 10).of("P").resources(&ids), FusionOption::Legacy);
    let placement = &job.plan().elements[1].placement;
    assert_eq!([&placement.co_locations, &placement.ex_locations], [&["x".to_owned()], &["y".to_owned()]]);
    let looks = looks(|budget| pod_needs(job.elements(), job.elements().pes(), budget));
    assert!(looks < 5, "{looks}");
}

/// A region in each of 50 channels, of one declaration, on a composite with these annotations besides.
fn declared(annotations: &str) -> Compiled {
    let sketch = Sketch::new().composite("C", 0, 0).parallel("C", 50);
    let sketch = sketch.op("C.S", 0, 1).consistent(0, "isStartOfRegion").op("C.T", 1, 0).consistent(0, "");
    let settings =
        [("period", "1"), ("drainTimeout", "2"), ("resetTimeout", "3"), ("maxConsecutiveResetAttempts", "4")];
    let sketch = sketch.chain(&["C.S", "C.T"]).main(annotations).declare_with(0, "periodic", &settings);
    let long = format!("defaultValue='\"{}7\"'", "0".repeat(10_000));
    let job = submitted(&sketch.value(1, "seven", &long), FusionOption::Legacy);
    assert_eq!(job.plan().consistent_regions.len(), 50);
    job
}

#[test]
fn annotations_of_a_composite_are_gone_through_once() {
    let job = declared(&"<splAnnotation tag='t'/>".repeat(10_000));
    let looks = looks(|budget| consistent_regions(job.elements(), job.bindings(), budget));
    assert!(looks < 5, "{looks}");
}

#[test]
fn long_values_of_declarations_are_read_within_the_budget() {
    let index = "<value key='index' type='' submissionTimeValueIndex='1'>7</value>";
    let job = declared(&format!("<splAnnotation tag='consistentRegion'>{index}</splAnnotation>").repeat(100));
    // They declare a region that no operator is in.
    let error = consistent_regions(job.elements(), job.bindings(), &Budget::cancelled()).unwrap_err();
    assert_eq!(error, Error::Cancelled);
}

#[test]
fn regions_that_touch_a_consistent_one_are_looked_at_once_per_operator() {
    // Regions of one channel within each other, and in the innermost one two wide ones: each channel of the first is
    // connected to each of the second. Another region is beside them.
    let job = |depth: usize| {
        let names: Vec<String> = (1..=depth).map(|depth| vec!["C"; depth].join(".")).collect();
        let settings =
            [("period", "1"), ("drainTimeout", "2"), ("resetTimeout", "3"), ("maxConsecutiveResetAttempts", "4")];
        let sketch = Sketch::new().declare_with(0, "periodic", &settings).op("Other", 0, 0).parallel("Other", 2);
        let sketch = names.iter().fold(sketch, |sketch, name| sketch.composite(name, 0, 0).parallel(name, 1));
        let [a, b] = ["A", "B"].map(|name| format!("{}.{name}", names[depth - 1]));
        let sketch = sketch.op(&a, 0, 1).consistent(0, "isStartOfRegion").op(&b, 1, 0).consistent(0, "");
        let sketch = sketch.connect(&format!("{a}:0"), &format!("{b}:0")).parallel(&a, 101).parallel(&b, 101);
        submitted(&sketch, FusionOption::Legacy)
    };
    for depth in [1, 40] {
        let job = job(depth);
        assert_eq!(job.topology().connections.len(), 101 * 101);
        let regions = &job.plan().regions;
        let beside: Vec<&str> = regions
            .iter()
            .filter(|region| !region.touches_consistent_region)
            .map(|region| region.region.name.as_str())
            .collect();
        assert_eq!((regions.len(), beside), (depth + 3, vec!["Other"]));
        assert_eq!(looks(|budget| regions_touching_consistent_ones(job.topology(), budget)), 1, "{depth}");
    }
}

#[test]
fn generations_are_compared_within_the_budget_and_annotations_by_address() {
    let annotations = "<splAnnotation tag='t'/>".repeat(20_000);
    let sketch = Sketch::new().op("Other", 0, 0).with(&annotations).parallel("Other", 9_000);
    let sketch = sketch.op("P", 0, 1).with(&annotations).parallel("P", 20).op("Q", 1, 0).parallel("Q", 1);
    let job = submitted(&sketch.connect("P:0", "Q:0"), FusionOption::Legacy);
    let widths = [("Q".to_owned(), 2)];
    let next = resize(&job, &widths, Policy::Sticky, &JobState::default(), &Budget::default()).unwrap();
    // Operators that send into the region are made again, with the annotations that they had.
    let generations = |budget: &Budget| Generations::new(job.topology(), next.topology(), budget);
    assert_eq!(looks(generations), 1);
    let generations = generations(&Budget::default()).unwrap();
    let changed = looks(|budget| changes(&generations, budget));
    assert!((1..5).contains(&changed), "{changed}");
    let exceptions = referring_to_distant_operators(&next.topology().application);
    let unchanged =
        |budget: &Budget| Unchanged::find(job.elements(), &generations, next.elements(), &exceptions, budget);
    let found = looks(unchanged);
    assert!((1..5).contains(&found), "{found}");
    let others = unchanged(&Budget::default()).unwrap().others(next.elements());
    assert_eq!(others.len(), 22);
}

#[test]
fn reasons_are_found_within_the_budget() {
    let job = submitted(&Sketch::row(&["S", "P", "T"]).parallel("P", 600), FusionOption::Legacy);
    let widths = [("P".to_owned(), 601)];
    let next = resize(&job, &widths, Policy::Sticky, &JobState::default(), &Budget::default()).unwrap();
    let budget = Budget::default();
    let generations = Generations::new(job.topology(), next.topology(), &budget).unwrap();
    let changes = changes(&generations, &budget).unwrap();
    let predecessor = Predecessor::new(&job, &generations, changes, next.elements(), &budget).unwrap();
    let prior = Prior::Job(predecessor);
    let change = |budget: &Budget| {
        prior.change(next.elements(), &mut next.plan().elements.clone(), prior.changed_operators(), budget)
    };
    assert_eq!(change(&budget).unwrap(), next.plan().change);
    let looks = looks(change);
    assert!((1..10).contains(&looks), "{looks}");
}

#[test]
fn a_layout_is_made_within_the_budget() {
    let job = submitted(&Sketch::row(&["P", "Q"]).parallel("P", 101).parallel("Q", 101), FusionOption::Legacy);
    let looks = looks(|budget| job.layout_within(budget));
    assert!((1..10).contains(&looks), "{looks}");
    assert_eq!(job.layout_within(&Budget::default()), Ok(job.layout()));
}

#[test]
fn a_document_ends_where_it_is_too_long() {
    // A definition has a long text, and the document has it once for each of 60 operators.
    let definition = "toolkitIndex='0'/></primitiveOperDefinitions>";
    let long = format!(
        "toolkitIndex='0'><capability>{}</capability></primitiveOperDefinition></primitiveOperDefinitions>",
        "c".repeat(100_000)
    );
    let adl = Sketch::new().op("P", 0, 0).parallel("P", 60).adl().replace(definition, &long);
    let source = Source::parse(adl.as_bytes(), &Budget::default()).unwrap();
    let job = submit(&source, &request(FusionOption::Manual(1)), &Budget::default()).unwrap();
    let [element] = &job.plan().elements[..] else { panic!("one PE") };
    assert!(element.bytes > 6_000_000, "{}", element.bytes);

    let pe = job.elements().pes()[0];
    let render = |sink: &mut Vec<u8>, budget: &Budget| job.writer.render(job.elements(), pe, sink, budget);
    let looks = looks(|budget| match render(&mut Vec::new(), budget) {
        Ok(_) => Ok(()),
        Err(WriteError::Refused(error)) => Err(error),
        Err(error) => panic!("{error}"),
    });
    assert!(looks >= 3, "{looks}");

    let mut text = Vec::new();
    let limits = Limits { aadl_bytes: 1 << 20, ..Limits::default() };
    let refused = render(&mut text, &Budget::with_limits(limits)).unwrap_err();
    assert!(refused.to_string().contains("too large"), "{refused}");
    assert!(text.len() < 1_300_000, "{}", text.len());
}

/// What is tried, and its ADL with this character many times.
type Table<'c> = (&'c str, &'c dyn Fn(&str) -> String);

/// Escaped, a quote is six times as long.
#[test]
fn tables_of_documents_have_a_limit() {
    // An eighth of that are 8 MiB.
    let budget = Budget::with_limits(Limits { aadl_bytes: 64 << 20, ..Limits::default() });
    let row = || Sketch::row(&["S", "T"]);
    let table = |before: &str, text: &str| row().adl().replace(before, &format!("{text}{before}"));
    let cases: [Table<'_>; 4] = [
        ("capabilities", &|unit| {
            let capability = format!("<capability>{}</capability>", unit.repeat(750_000)).repeat(2);
            let attributes = "index='1' kind='k2' runtimeType='SPL_CPlusPlus' toolkitIndex='0'";
            let definition = format!("<primitiveOperDefinition {attributes}>{capability}</primitiveOperDefinition>");
            table("</primitiveOperDefinitions>", &definition)
        }),
        ("kinds of operators", &|unit| {
            let definition = |index: u32| {
                let attributes = "runtimeType='SPL_CPlusPlus' toolkitIndex='0'";
                let kind = unit.repeat(750_000);
                format!("<primitiveOperDefinition index='{index}' kind='{kind}' {attributes}/>")
            };
            table("</primitiveOperDefinitions>", &[1, 2].map(definition).concat())
        }),
        ("tuple types", &|unit| {
            let attribute = format!("<tt:attr name='{}' type='int32'/>", unit.repeat(300_000));
            table("</tupleTypes>", &format!("<tupleType index='1'><tuple>{attribute}</tuple></tupleType>"))
        }),
        ("host pools", &|unit| {
            let tags = ["a", "b"].map(|tag| tag.to_owned() + &unit.repeat(750_000));
            row().pool(1, "Pool", &[&tags[0], &tags[1]]).adl()
        }),
    ];
    for (what, adl) in cases {
        for (unit, expected) in [("x", None), ("\"", Some("have in common is too large: no room is left for"))] {
            let source = Source::parse(adl(unit).as_bytes(), &Budget::default()).expect(what);
            let error = submit(&source, &request(FusionOption::Legacy), &budget).err().map(|error| error.to_string());
            let is_expected = match (&error, expected) {
                (Some(error), Some(expected)) => error.contains(expected),
                (error, expected) => error.is_none() && expected.is_none(),
            };
            assert!(is_expected, "{what} of {unit}: {error:?}");
        }
    }
}

#[test]
fn fragments_of_all_kinds_have_a_limit_together() {
    // An eighth of that are 8 MiB.
    let budget = Budget::with_limits(Limits { aadl_bytes: 64 << 20, ..Limits::default() });
    let long = "x".repeat(1_000_000);
    let adl = |capabilities: usize, constants: usize| {
        let constant = |number| format!("<runtimeConstant name='c{number}' value='{long}'/>");
        let constants: String = (0..constants).map(constant).collect();
        let constants = format!("<runtimeConstants>{constants}</runtimeConstants>");
        let attributes = "index='1' kind='k2' runtimeType='SPL_CPlusPlus' toolkitIndex='0'";
        let capabilities = format!("<capability>{long}</capability>").repeat(capabilities);
        let end = "</primitiveOperDefinitions>";
        let definition = format!("<primitiveOperDefinition {attributes}>{capabilities}</primitiveOperDefinition>{end}");
        let row = Sketch::row(&["S", "P", "T"]).parallel("P", 2).adl();
        row.replacen("<runtimeConstants/>", &constants, 1).replace(end, &definition)
    };
    for (capabilities, constants, fit) in [(5, 1, true), (1, 5, true), (5, 4, false)] {
        let adl = adl(capabilities, constants);
        let source = Source::parse(adl.as_bytes(), &Budget::default()).unwrap();
        let submitted = |budget| submit(&source, &request(FusionOption::Legacy), budget);
        assert_eq!(submitted(&budget).is_ok(), fit, "{capabilities} and {constants}");
        // What is taken over from the generation before counts, too.
        let (job, widths) = (submitted(&Budget::default()).unwrap(), [("P".to_owned(), 3)]);
        let resized = resize(&job, &widths, Policy::Sticky, &JobState::default(), &budget);
        assert_eq!(resized.is_ok(), fit, "{capabilities} and {constants}, resized");
    }
}

/// The generations before may go first, and nobody weighs a job again.
#[test]
fn a_job_weighs_the_same_however_many_generations_there_are() {
    let sketch = Sketch::row(&["S", "P", "T"]).parallel("P", 20);
    let mut jobs = vec![submitted(&sketch, FusionOption::Legacy)];
    for width in 21..25 {
        let widths = [("P".to_owned(), width)];
        let before = jobs.last().unwrap();
        jobs.push(resize(before, &widths, Policy::Sticky, &JobState::default(), &Budget::default()).unwrap());
    }
    let last = jobs.pop().unwrap();
    let beside_others = last.weight();
    drop(jobs);
    assert_eq!(beside_others, last.weight());
}

/// A cache of jobs is bounded by what they say.
#[test]
fn a_job_weighs_what_its_caller_has_given() {
    const LONG: u64 = 1 << 20;
    let long = || "x".repeat(LONG as usize);
    let sketch = Sketch::row(&["S", "P", "T"]).parallel("P", 2).value(0, "declared", "");
    let source = source(&sketch);
    let compiled = |request: Request| submit(&source, &Arc::new(request), &Budget::default()).unwrap();
    let least = compiled(Request::default()).weight();
    let given = |name: &str| Request { submission_values: [(name.to_owned(), long())].into(), ..Request::default() };
    for (what, request, times) in [
        ("a value", given("other"), 1),
        ("a name", Request { submission_values: [(long(), String::new())].into(), ..Request::default() }, 2),
        ("a value and its literal", given("declared"), 2),
        ("a pattern of a width", Request { widths: vec![(long(), 2)], ..Request::default() }, 1),
        (
            "a pattern of a number of channels",
            Request { channel_counts: vec![(long(), ChannelCount::Ignored)], ..Request::default() },
            1,
        ),
        (
            "a setting",
            Request {
                configuration: Configuration { elastic: Some(long()), ..Configuration::default() },
                ..Request::default()
            },
            1,
        ),
        ("the name of the job, and what documents have of it", Request { job_name: long(), ..Request::default() }, 2),
    ] {
        let job = compiled(request);
        let more = job.weight() - least;
        assert!((times * LONG..(times + 3) * LONG).contains(&more), "{what}: {more}");
        // The generation before may go first.
        let widths = [("P".to_owned(), 3)];
        let next = resize(&job, &widths, Policy::Sticky, &JobState::default(), &Budget::default()).unwrap();
        let more = next.weight() - least;
        assert!(more >= times * LONG, "{what}, resized: {more}");
    }
}
