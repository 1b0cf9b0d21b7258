//! What an expansion spends is counted before it is spent: time between two looks at the budget, and bytes of texts.

use super::sketch::Expand;
use crate::budget::{Budget, Cancellation, Limits};
use crate::error::{Error, Problems};
use crate::heap;
use crate::logical::submission::bind;
use crate::logical::{Application, OperatorId, OperatorKind};
use crate::topology::annotations::AnnotationCache;
use crate::topology::operators::ResolvedPrimitives;
use crate::topology::shape::Shape;
use crate::topology::texts::TextBudget;
use crate::topology::widths::Overrides;
use crate::topology::wiring::Wiring;
use crate::topology::{Configuration, Connection, Parameters, expand};
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

fn looks(sketch: &Sketch) -> usize {
    let looks = Arc::new(Looks::default());
    let budget = Budget { cancellation: Some(Arc::<Looks>::clone(&looks)), ..Budget::default() };
    sketch.expand_within(&budget).unwrap();
    looks.0.load(Ordering::Relaxed)
}

/// A budget for so many bytes of texts.
fn texts(bytes: u64) -> Budget {
    Budget::with_limits(Limits { aadl_bytes: 8 * bytes, ..Limits::default() })
}

fn is_about_texts(error: &Error) -> bool {
    error.problems().first().is_some_and(|problem| problem.message.starts_with("texts of channels"))
}

/// What `look` makes of the resolved primitives of a sketch.
fn resolve<T>(
    sketch: &Sketch,
    configuration: Configuration,
    budget: &Budget,
    look: impl FnOnce(&Shape<'_>, &ResolvedPrimitives, &mut TextBudget) -> T,
) -> Result<T, Error> {
    let application = sketch.application()?;
    let bindings = bind(&application, &sketch.given)?;
    let parameters = Parameters { bindings, configuration, ..Parameters::default() };
    let mut problems = Problems::default();
    let overrides = Overrides::parse(&parameters.widths, &mut problems);
    let shape = Shape::build(&application, None, &overrides, &parameters.bindings, &mut problems, budget)?;
    let mut texts = TextBudget::new(&budget.limits);
    let resolved = ResolvedPrimitives::new(&shape, &parameters, &mut texts, &mut problems, budget)?;
    problems.into_result()?;
    Ok(look(&shape, &resolved, &mut texts))
}

fn annotation(tag: &str, values: &str) -> String {
    format!("<splAnnotation tag='{tag}'>{values}</splAnnotation>")
}

fn value(key: &str, text: &str) -> String {
    format!("<value key='{key}' type=''>{text}</value>")
}

#[test]
fn an_import_that_is_connected_to_nothing_asks_its_budget_in_each_channel() {
    let long = "a == 1 || ".repeat(1000);
    let import = |filter: &str, channels: u32| {
        let name = "<nameBasedImport applicationName='a' streamName='s'/>";
        let filter = format!("filter='{long}{filter}'");
        Sketch::new().composite("C", 0, 0).import("C.Imp", name, &filter).parallel("C", channels)
    };
    let more = |filter: &str| looks(&import(filter, 60)) - looks(&import(filter, 10));
    let varies = more("b == getChannel()");
    assert!(varies >= 50, "{varies}");
    // What is the same in all channels is folded once.
    let same = more("b == 1");
    assert!(same < 10, "{same}");
}

#[test]
fn expressions_are_read_within_the_budget_and_one_that_imports_share_is_read_once() {
    let long = "a == 1 || ".repeat(1000);
    let name = "<nameBasedImport applicationName='a' streamName='s'/>";
    let import = |sketch: Sketch, number| sketch.import(&format!("I{number}"), name, &format!("filter='{long}b'"));
    let imports = (0..50).fold(Sketch::new(), import);
    let looks = |application: &Application| {
        let application = Arc::new(application.clone());
        let looks = Arc::new(Looks::default());
        let budget = Budget { cancellation: Some(Arc::<Looks>::clone(&looks)), ..Budget::default() };
        let expanded = expand(&application, &Parameters::default(), &budget);
        (expanded.is_ok(), looks.0.load(Ordering::Relaxed))
    };
    // A width that is refused lets the expressions be checked only.
    for (is_sound, sketch) in [(true, imports.clone()), (false, imports.op("P", 0, 0).parallel("P", 0))] {
        let mut application = Application::clone(&sketch.application().unwrap());
        let each = looks(&application);
        let filter: Arc<str> = format!("{long}b").into();
        for operator in application.operators.values_mut() {
            if let OperatorKind::Import(import) = &mut operator.kind {
                import.filter = Some(Arc::clone(&filter));
            }
        }
        let once = looks(&application);
        assert_eq!([each.0, once.0], [is_sound; 2]);
        assert!(each.1 >= once.1 + 49, "{each:?}, {once:?}");
    }
}

#[test]
fn trees_of_expressions_are_counted() {
    let name = "<nameBasedImport applicationName='a' streamName='s'/>";
    let imports = |end: &str| {
        let filter = format!("filter='{}{end}'", "a|".repeat(1_000));
        (0..10).fold(Sketch::new(), |sketch, number| sketch.import(&format!("I{number}"), name, &filter))
    };
    let expand = |end: &str| imports(end).expand_within(&texts(500_000)).map(|_| ());
    // What is the same in all channels is folded, and its tree is gone.
    assert_eq!(expand("b == 1"), Ok(()));
    assert!(is_about_texts(&expand("b == getChannel()").unwrap_err()));
    // Also what something short is folded to.
    let large = "1&lt;&lt;1000|".repeat(300);
    assert!(is_about_texts(&expand(&format!("{large}b")).unwrap_err()));
}

/// A few kilobytes that a folding goes through a hundred times, and makes a number of.
fn costly(number: &str) -> String {
    format!("hash(\"{}\" + (rstring){number}{})", "x".repeat(10_000), " + \"y\"".repeat(100))
}

#[test]
fn what_folding_takes_in_all_channels_is_counted() {
    let budget = Budget::with_limits(Limits { aadl_bytes: 8 << 20, ..Limits::default() });
    let expand = |filter: &str, channels: u32| {
        let name = "<nameBasedImport applicationName='a' streamName='s'/>";
        let sketch = Sketch::new().composite("C", 0, 0).import("C.Imp", name, &format!("filter='{filter}'"));
        sketch.parallel("C", channels).expand_within(&budget).map(|_| ())
    };
    let varies = format!("{} == b", costly("getChannel()"));
    assert_eq!(expand(&varies, 2), Ok(()));
    let error = expand(&varies, 20).unwrap_err();
    assert!(error.problems()[0].message.starts_with("folding the expressions of all imports"), "{error}");
    // A part without channel functions is folded once.
    assert_eq!(expand(&format!("{} == getChannel()", costly("1")), 20), Ok(()));
    // What is taken over is printed in each channel, although nobody reads it.
    let long = format!("a == getChannel() || b == \"{}\"", "x".repeat(100_000));
    assert_eq!(expand(&long, 10), Ok(()));
    let error = expand(&long, 100).unwrap_err();
    assert!(error.problems()[0].message.starts_with("folding the expressions of all imports"), "{error}");
}

#[test]
fn locations_are_filled_in_within_the_budget() {
    // Long texts, of which little is left in each channel.
    let sketch = |zeros: usize| {
        let id = format!("byChannel(x, {})", "0".repeat(zeros));
        let sketch = Sketch::new().composite("C", 0, 0).parallel("C", 100).op("C.P", 0, 0);
        sketch.resources(&format!("<coLocation colocId='{id}'/>"))
    };
    let more = looks(&sketch(70_000)) - looks(&sketch(1));
    assert!(more >= 90, "{more}");
}

#[test]
fn walks_over_ends_that_become_nothing_ask_their_budget() {
    for kind in ["Broadcast", "RoundRobin"] {
        let sketch = |times: usize| {
            let sketch = Sketch::new().op("O", 0, 1).composite("P", 1, 0).op("P.S", 1, 0).composite("P.R", 1, 0);
            let sketch = (0..times).fold(sketch, |sketch, _| sketch.connect("P:0", "P.R:0"));
            let width = |width: u32| format!("<constantWidth>{width}</constantWidth>");
            let sketch =
                sketch.parallel_by("P", &width(1_000), kind, "").parallel_by("P.R", &width(1), "Broadcast", "");
            sketch.connect("O:0", "P:0").connect("P:0", "P.S:0")
        };
        let more = looks(&sketch(1_000)) - looks(&sketch(1));
        assert!(more >= 100, "{kind}: {more}");
    }
}

/// Two ports of a region, the ends of the second one counting: so many connections lead from each to the same operator.
fn overwritten(width: u32, times: [usize; 2]) -> Sketch {
    let sketch = Sketch::new().op("O", 0, 1).composite("P", 2, 0).op("P.S", 1, 0).parallel("P", width);
    let sketch = sketch.connect("O:0", "P:0").connect("O:0", "P:1");
    let inside = |port: usize| (0..times[port]).map(move |_| format!("P:{port}"));
    inside(0).chain(inside(1)).fold(sketch, |sketch, port| sketch.connect(&port, "P.S:0"))
}

#[test]
fn connections_that_others_overwrite_are_dropped() {
    for times in [[1, 1], [300, 1], [1, 300], [300, 300]] {
        let connections = overwritten(1_000, times).expand().unwrap().connections;
        assert!((1_000..=2_000).contains(&connections.capacity()), "{times:?}: {}", connections.capacity());
        // The last one counts, also if it was sorted when others came.
        let is_second = |connection: &Connection| connection.via().is_some_and(|via| via.splitter == 1);
        assert!(connections.len() == 1_000 && connections.iter().all(is_second), "{times:?}");
    }
}

#[test]
fn connections_that_lead_to_nothing_at_all_ask_the_budget() {
    let sketch = |times: usize| {
        let sketch = Sketch::new().declare(0, "periodic").composite("P", 0, 0).composite("P.N", 1, 0);
        let sketch = sketch.op("P.O", 0, 1).consistent(0, "isStartOfRegion").parallel("P", 1_000);
        (0..times).fold(sketch, |sketch, _| sketch.connect("P.O:0", "P.N:0"))
    };
    // Once where connections are made, and once in the search for consistent regions.
    let more = looks(&sketch(1_000)) - looks(&sketch(1));
    assert!(more >= 220, "{more}");
}

#[test]
fn positions_of_deep_imports_are_found_within_the_budget() {
    let sketch = |depth: usize| {
        let names: Vec<String> = (1..=depth).map(|depth| vec!["C"; depth].join(".")).collect();
        let sketch = names.iter().fold(Sketch::new(), |sketch, name| sketch.composite(name, 0, 0));
        let import = format!("{}.Imp", names[depth - 1]);
        sketch.parallel("C", 1_000).import(&import, "<nameBasedImport applicationName='a' streamName='s'/>", "")
    };
    let more = looks(&sketch(200)) - looks(&sketch(1));
    assert!(more >= 20, "{more}");
}

/// How much more often a sketch asks its budget if there are consistent regions in it.
fn looks_for_regions(sketch: &Sketch, starts: u64) -> usize {
    let add = |sketch, number| Sketch::op(sketch, &format!("A{number}"), 0, 0);
    let enter = |sketch, number| add(sketch, number).consistent(number, "isStartOfRegion");
    let with = looks(&(0..starts).fold(sketch.clone(), enter));
    with - looks(&(0..starts).fold(sketch.clone(), add))
}

#[test]
fn declarations_are_read_within_the_budget() {
    let many = value("k", "v").repeat(500);
    let declare = |number| value("index", &format!("{number}")) + &many;
    let timeouts = value("drainTimeout", "1") + &value("resetTimeout", "1");
    let declarations = (0..200).map(|number| annotation("consistentRegion", &(declare(number) + &timeouts)));
    let more = looks_for_regions(&Sketch::new().main(&declarations.collect::<String>()), 1);
    assert!(more >= 10, "{more}");
}

#[test]
fn long_timeouts_are_read_within_the_budget() {
    let long = |digits: usize| {
        let timeout = |key: &str| format!("<value key='{key}' type='' submissionTimeValueIndex='4'/>");
        let timeouts = timeout("drainTimeout") + &timeout("resetTimeout");
        let declare = |number| annotation("consistentRegion", &(value("index", &format!("{number}")) + &timeouts));
        let digits = format!("defaultValue='\"0.{}\"'", "1".repeat(digits));
        let sketch = Sketch::new().value(4, "v", &digits).main(&(0..20).map(declare).collect::<String>());
        looks_for_regions(&sketch, 20)
    };
    let more = long(500_000) - long(1);
    assert!(more >= 20, "{more}");
}

#[test]
fn widths_are_read_within_the_budget_and_each_value_once() {
    let looks = |digits: usize, regions: usize| {
        let value = format!("defaultValue='\"{}1\"'", "0".repeat(digits));
        let region = |sketch: Sketch, number: usize| {
            let name = format!("P{number}");
            let width = "<submissionTimeParameterIndexForWidth>4</submissionTimeParameterIndexForWidth>";
            sketch.op(&name, 0, 0).parallel_by(&name, width, "RoundRobin", "")
        };
        looks(&(0..regions).fold(Sketch::new().value(4, "v", &value), region))
    };
    let (short, once, often) = (looks(1, 1), looks(500_000, 1), looks(500_000, 20));
    assert!(once > short && often < once + 5, "{short}, {once}, {often}");
}

#[test]
fn links_are_read_within_the_budget() {
    let adl = Sketch::row(&["A", "B"]).adl();
    let start = adl.find("<connection ").unwrap();
    let connection = adl[start..=start + adl[start..].find("/>").unwrap() + 1].to_owned();
    let many = adl.replacen(&connection, &connection.repeat(10_000), 1);
    let application = crate::adl::parse(many.as_bytes(), &Budget::default()).unwrap();
    let (mut problems, mut found) = (Problems::default(), Problems::default());
    let wiring = Wiring::new(&application, &mut problems, &mut found, &Budget::cancelled(), |_, _, _| Ok(()));
    assert_eq!(wiring.map(|_| ()), Err(Error::Cancelled));
}

#[test]
fn annotations_are_resolved_within_the_budget() {
    let values = value("k", "v").repeat(10_000);
    let sketch = Sketch::new().op("A", 0, 0).with(&annotation("t", &values));
    let resolved = resolve(&sketch, Configuration::default(), &Budget::cancelled(), |_, _, _| ());
    assert_eq!(resolved, Err(Error::Cancelled));
}

#[test]
fn operators_share_their_threading_model() {
    let long = "m".repeat(100_000);
    let operators = |sketch: Sketch| (0..100).fold(sketch, |sketch, number| sketch.op(&format!("A{number}"), 0, 0));
    let on_main = operators(Sketch::new().main(&annotation("threading", &value("model", &long))));
    let of_job = Configuration { threading_model: Some(long.clone()), ..Configuration::default() };
    for (what, sketch, configuration) in
        [("main composite", on_main, Configuration::default()), ("job", operators(Sketch::new()), of_job)]
    {
        let bytes = resolve(&sketch, configuration, &Budget::default(), |_, resolved, _| {
            assert_eq!(resolved.iter().filter_map(|(_, one)| one.annotations.threading_model()).count(), 100);
            heap::size(resolved)
        });
        let bytes = bytes.unwrap();
        assert!((100_000..1_000_000).contains(&bytes), "{what}: {bytes}");
    }
}

#[test]
fn the_nearest_composite_decides_the_threading_model() {
    let threading = |model: &str| annotation("threading", &value("model", model));
    let sketch = Sketch::new()
        .main(&threading("main"))
        .op("A", 0, 0)
        .composite("C", 0, 0)
        .with(&threading("c"))
        .op("C.A", 0, 0)
        .composite("C.D", 0, 0)
        .op("C.D.A", 0, 0)
        .composite("E", 0, 0)
        .op("E.A", 0, 0);
    let topology = sketch.expand().unwrap();
    let models =
        topology.operators.values().map(|operator| (operator.name.as_str(), operator.threading_model.as_deref()));
    let mut models: Vec<_> = models.collect();
    models.sort_unstable();
    let expected = [("A", Some("main")), ("C.A", Some("c")), ("C.D.A", Some("c")), ("E.A", Some("main"))];
    assert_eq!(models, expected);
}

#[test]
fn values_that_refer_to_a_long_text_are_counted_before_they_are_made() {
    let reference = "<value key='k' type='' submissionTimeValueIndex='4'/>".repeat(20);
    let long = format!("defaultValue='\"{}\"'", "x".repeat(10_000));
    let sketch = |tag: &str| {
        let sketch = Sketch::new().op("A", 0, 0).with(&annotation(tag, &reference)).value(4, "v", &long);
        sketch.main(&annotation("threading", ""))
    };
    let resolved = |bytes| resolve(&sketch("t"), Configuration::default(), &texts(bytes), |_, _, _| ());
    assert!(resolved(201_000).is_ok());
    assert!(is_about_texts(&resolved(199_000).unwrap_err()));
}

#[test]
fn lists_of_views_count_for_their_entries() {
    for key in ["filter", "attributes"] {
        let view = annotation("view", &(value("name", "v") + &value(key, &",".repeat(10_000))));
        let sketch = Sketch::new().op("A", 0, 0).with(&view);
        let resolved = |bytes| resolve(&sketch, Configuration::default(), &texts(bytes), |_, _, _| ());
        assert!(is_about_texts(&resolved(100_000).unwrap_err()), "{key}");
        assert!(resolved(1_000_000).is_ok(), "{key}");
    }
}

#[test]
fn views_are_counted_before_they_are_made() {
    let name = "C".repeat(10_000);
    let views = annotation("view", &value("name", "v")).repeat(20);
    let sketch = Sketch::new().composite(&name, 0, 0).op(&format!("{name}.A"), 0, 0).with(&views);
    let filled = |bytes| {
        resolve(&sketch, Configuration::default(), &texts(bytes), |shape, resolved, texts| {
            let (id, one): (OperatorId, _) = resolved.iter().next().unwrap();
            let before = texts.charged();
            let filled = one.annotations.fill(shape, (id, &[]), None, || None, &mut AnnotationCache::default(), texts);
            (filled.map(|all| all.len()).map_err(|error| is_about_texts(&error)), texts.charged() - before)
        })
        .unwrap()
    };
    // Nothing is left of those that there was room for.
    assert_eq!(filled(300_000), (Err(true), 0));
    assert_eq!(filled(500_000).0, Ok(20));
}

#[test]
fn tags_of_host_pools_are_looked_up_the_fewer_in_the_more() {
    // One region replicates some tags, and has an operator in each of 100 pools with other tags. So nothing is copied.
    let tagged = |of_region: usize, of_pool: usize| {
        let replicated: String = (0..of_region).map(|tag| format!("<replicateHostTag name='r{tag}'/>")).collect();
        let tags: Vec<String> = (0..of_pool).map(|tag| format!("p{tag}")).collect();
        let tags: Vec<&str> = tags.iter().map(String::as_str).collect();
        let sketch = (1..=100).fold(Sketch::new().composite("C", 0, 0), |sketch, pool| {
            let place = format!("<poolLocation poolIndex='{pool}'/>");
            sketch.pool(pool, &format!("Pool{pool}"), &tags).op(&format!("C.P{pool}"), 0, 0).resources(&place)
        });
        sketch.parallel_by("C", "<constantWidth>1</constantWidth>", "Hash", &replicated)
    };
    let [few, many_each, many_in_region, many_in_pools] =
        [(1, 1), (1_000, 1_000), (100_000, 1), (1, 1_000)].map(|(region, pool)| looks(&tagged(region, pool)));
    // Each of 100,000 comparisons is counted: the budget is asked every 8,192 of them.
    assert!(many_each >= few + 10, "{few} {many_each}");
    // All tags are looked at once, and those of the other side are looked up in them.
    for many in [many_in_region, many_in_pools] {
        assert!((few + 10..few + 20).contains(&many), "{few} {many}");
    }
}

#[test]
fn all_texts_of_channels_are_counted() {
    let [short, long] = ["x".to_owned(), "x".repeat(10_000)];
    let inside = || Sketch::new().composite("C", 0, 0).parallel("C", 100);
    let import = |scope: &str| {
        let what = format!("<propertyBasedImport subscription='a == 1' applicationScope='{scope}'/>");
        inside().import("C.Imp", &what, "").op("C.P", 1, 0).chain(&["C.Imp", "C.P"])
    };
    let export = |property: &str| {
        let what = format!("<properties><property {property}/></properties>");
        inside().op("C.P", 0, 1).export("C.Exp", &what, "").chain(&["C.P", "C.Exp"])
    };
    let locations = |count: usize| {
        let ids = "<coLocation colocId=''/>".repeat(count) + "<coLocation colocId='getChannel()'/>";
        inside().op("C.P", 0, 0).resources(&ids)
    };
    let depth = |zeros: usize| {
        let id = format!("<coLocation colocId='byChannel(x, {})'/>", "0".repeat(zeros));
        inside().op("C.P", 0, 0).resources(&id)
    };
    let pool = |id: &str| {
        let resources = format!("<poolLocation poolIndex='1'/><exLocation exlocId='{id}'/>");
        let sketch = Sketch::new().pool(1, "Pool", &["t"]).op("P", 0, 0).resources(&resources);
        sketch.parallel_by("P", "<constantWidth>100</constantWidth>", "Hash", "<replicateHostTag name='t'/>")
    };
    let consistent = |text: &str| {
        let entry = value("index", "0") + &value("isStartOfRegion", "true") + &value("x", text);
        inside().declare(0, "periodic").op("C.P", 0, 0).with(&annotation("consistentRegionEntry", &entry))
    };
    for (what, few, many) in [
        ("scope of an import", import(&short), import(&long)),
        ("name of a property", export("name='x' type='t'"), export(&format!("name='{long}' type='t'"))),
        ("type of a property", export("name='x' type='t'"), export(&format!("name='x' type='{long}'"))),
        ("places", locations(1), locations(1000)),
        ("places of which little is left", depth(1), depth(10_000)),
        // What each channel has of its own anyway is not copied again.
        ("places beside copies of a pool", pool(&("x".repeat(4_000) + "getChannel()")), pool(&long)),
        // Once in the region, once for the document: each is less than there is room for.
        ("annotations of consistent regions", consistent(&short), consistent(&"x".repeat(3_500))),
    ] {
        let expand = |sketch: &Sketch| sketch.expand_within(&texts(500_000)).map(|_| ());
        assert_eq!(expand(&few), Ok(()), "{what}");
        let error = expand(&many).expect_err(what);
        assert!(is_about_texts(&error), "{what}: {error}");
    }
}
