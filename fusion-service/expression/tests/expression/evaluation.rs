//! What the broker sees (rule expression-8).

use spl_expression::{Evaluation, Expression, Limits, Properties, Selected, Value};

/// `name:type=value|value`, separated by blanks; texts without quotes.
fn properties(text: &str) -> Properties {
    let property = |property: &str| {
        let (head, values) = property.split_once('=').unwrap();
        let (name, declared) = head.split_once(':').unwrap();
        let quote = |value: &str| if declared.contains("rstring") { format!("\"{value}\"") } else { value.to_owned() };
        let values: Vec<String> = if values.is_empty() && declared.starts_with("list") {
            Vec::new()
        } else {
            values.split('|').map(quote).collect()
        };
        (name.to_owned(), Value::parse(declared.parse().unwrap(), &values).unwrap())
    };
    text.split_whitespace().map(property).collect()
}

fn evaluate(text: &str, properties: &Properties) -> Evaluation {
    Expression::parse(text, &Limits::default()).unwrap().evaluate(properties)
}

/// The printed value, `?` for unknown, `error`.
fn outcome(text: &str, properties: &Properties) -> String {
    match evaluate(text, properties) {
        Evaluation::Value(value) => value.to_string(),
        Evaluation::Unknown => "?".to_owned(),
        Evaluation::Error(_) => "error".to_owned(),
    }
}

const PROPERTIES: &str = "num1:int64=0 num2:int64=1 num3:int64=42 num4:int64=15 num5:int64=0 float2:float64=3.14 \
    float3:float64=2.0 float4:float64=2.17 logic1:boolean=false logic2:boolean=true str1:rstring=one evens:list<int64>=0|2|4 \
    odds:list<int64>=1|3|5 text:list<rstring>=one|two|three floats:list<float64>=0.0|1.0|2.0|3.0";

#[test]
fn vectors_over_one_set_of_properties() {
    let properties = properties(PROPERTIES);
    let table = [
        ("logic1 && logic2", "false"),
        ("logic1 || logic2", "true"),
        ("num1 <= num5 && num3 > num2 || num4 > num3", "true"),
        ("num3 * num4 - num2 == 629", "true"),
        ("num1 + num2 - num3 - num4 + num5", "-56"),
        ("float3 == 2", "true"),
        ("0 in floats", "true"),
        ("101 in floats", "false"),
        ("(int64)(float2 + float4) * 3", "15"),
        ("(rstring)logic1", "\"false\""),
        ("str1 in text", "true"),
        ("\"ten\" in text", "false"),
        ("3 in evens", "false"),
        ("evens != odds", "true"),
        ("odds[2] == 5", "true"),
        ("evens[1000] == 0", "error"),
        ("5/0", "error"),
        ("(boolean)3.14", "error"),
        ("evens[2] * num4 == seq[9]", "?"),
        ("notThere1 == 3 || num1 == 0 || notThere2 == 4", "true"),
        ("notThere1 == 3 && num1 == 1", "false"),
        ("notThere1 == 3 || num1 != 0", "?"),
        ("12 - 2 - 3", "7"),
        ("4 - ((1 - 2) + 3) * 2", "0"),
        ("2 << 3 << 4", "256"),
        ("getChannel() == 0", "?"),
    ];
    for (text, expected) in table {
        assert_eq!(outcome(text, &properties), expected, "{text}");
    }
}

#[test]
fn vectors_with_properties_of_their_own() {
    let table = [
        ("1 == 1", "", "true"),
        ("1 == 1", "x:int64=1", "true"),
        ("flag", "flag:boolean=true", "true"),
        ("!flag", "flag:boolean=false", "true"),
        ("\"IBM\" in tickers && n == 1", "tickers:list<rstring>=IBM|GOOG n:int64=1", "true"),
        ("'IBM' in tickers", "tickers:list<rstring>=IBM|GOOG", "true"),
        ("(kind == \"bargains\") && (category == \"tech\")", "kind:rstring=bargains category:rstring=tech", "true"),
        (
            "(kind == \"bargains\") && (category == \"tech\")",
            "kind:rstring=bargains category:rstring=technology",
            "false",
        ),
        ("a == 1 && (b == 2 || c == 3)", "a:int64=1 c:int64=3", "true"),
        ("a < b in c", "a:int64=1 b:int64=2 c:list<boolean>=true", "true"),
        ("a & 1 == 1", "a:int64=1", "error"),
        ("(a & 1) == 1", "a:int64=1", "true"),
        ("-7 / 2", "x:int64=1", "-3"),
        ("-7 % 3", "x:int64=1", "-1"),
        ("7 / -2", "x:int64=1", "-3"),
        ("x[-1] == 2", "x:list<int64>=2", "error"),
        ("5/0 == 1", "x:int64=1", "error"),
        ("hash(b)", "b:boolean=true", "1231"),
        ("hash(s)", "s:rstring=forty-two", "2032045325"),
        ("hash(l)", "l:list<int64>=1|2", "994"),
        ("hash(i)", "i:int64=4294967296", "31"),
        ("(int64)d", "d:float64=-3.9", "-3"),
        ("(rstring)d", "d:float64=1e10", "\"1.0E10\""),
        ("s == \"a\\nb\"", "s:rstring=a\\nb", "true"),
        ("$a == 1", "$a:int64=1", "true"),
        ("9223372036854775807 + 1 == 9223372036854775808", "", "true"),
        ("x in empty", "x:int64=1 empty:list<int64>=", "false"),
        ("s < t", "s:rstring=a t:rstring=b", "true"),
        // By UTF-16 code units, the musical symbol comes before the private character.
        ("s < t", "s:rstring=𝄞 t:rstring=\u{e000}", "true"),
        ("x == y", "x:list<int64>=1 y:list<float64>=1", "error"),
        ("!s", "s:rstring=True", "false"),
    ];
    for (text, given, expected) in table {
        assert_eq!(outcome(text, &properties(given)), expected, "{text} with {given}");
    }
}

#[test]
fn corrected_against_the_reference() {
    let table = [
        // Booleans are booleans, and compare; nothing matches by its text.
        ("true", "", "true"),
        ("false", "", "false"),
        ("TRUE", "", "?"),
        ("\"true\"", "", "\"true\""),
        ("flag == true", "flag:boolean=true", "true"),
        ("flag == flag2", "flag:boolean=true flag2:boolean=true", "true"),
        ("flag != flag2", "flag:boolean=true flag2:boolean=false", "true"),
        ("true && a", "a:boolean=true", "true"),
        // The result does not depend on an order, or on properties that have nothing to do with it.
        ("a == 1 || b == \"x\"", "a:int64=1 b:int64=5", "true"),
        ("x / 3 * 6 == 0", "x:int64=1", "true"),
        ("x / 3 * 6 == 0", "x:int64=1 y:int64=1", "true"),
        ("!(a == 1 || b == 2)", "a:int64=5 b:int64=6", "true"),
        // The operands stay where they are.
        ("2 < f", "f:float64=1.0", "false"),
        ("10 / f == 5.0", "f:float64=2.0", "true"),
        ("3 - f == 1.5", "f:float64=1.5", "true"),
        // Errors are errors, not exceptions.
        ("a && b", "a:int64=1 b:boolean=true", "error"),
        ("a && b", "a:int64=1 b:boolean=false", "false"),
        ("a || b", "a:int64=1", "error"),
        ("(int64)s == 1", "s:rstring=x", "error"),
    ];
    for (text, given, expected) in table {
        assert_eq!(outcome(text, &properties(given)), expected, "{text} with {given}");
    }
}

#[test]
fn only_the_boolean_true_matches() {
    let properties = properties("b:boolean=true s:rstring=true n:int64=1");
    for (text, expected) in
        [("b", true), ("!b", false), ("s", false), ("n", false), ("unknown", false), ("n == s", false)]
    {
        assert_eq!(Expression::parse(text, &Limits::default()).unwrap().matches(&properties), expected, "{text}");
    }
}

#[test]
fn errors_have_a_place() {
    let Evaluation::Error(error) = evaluate("a == 1 && b[3] == 2", &properties("a:int64=1 b:list<int64>=1")) else {
        panic!("no error");
    };
    assert_eq!(error.to_string(), "at offset 11: index 3 is outside the list");
}

#[test]
fn work_is_bounded() {
    let mut properties = Properties::new();
    properties.insert("s", Value::Rstring("x".repeat(1 << 20).into()));
    // It ends there, although what follows would decide.
    let decided = format!("{} || true", ["hash(s) == 1"; 6].join(" || "));
    assert_eq!(
        Expression::parse(&decided, &Limits::default()).unwrap().select(&properties).selected,
        Selected::TooCostly
    );
    for operator in ["+", "==", "<"] {
        let text = vec![format!("hash(s {operator} s)"); 10_000].join(" + ");
        let Evaluation::Error(error) = evaluate(&text, &properties) else { panic!("no error") };
        assert_eq!(error.message, "the expression costs too much to evaluate");
    }
}

#[test]
fn what_is_written_by_people_is_far_from_the_bound_and_what_is_meant_to_cost_much_is_cut() {
    let any_of = |count: usize| (0..count).map(|n| format!("a == {n}")).collect::<Vec<_>>().join(" || ");
    let texts = |count: usize| (0..count).map(|n| format!("text-{n}")).collect::<Vec<_>>().join("|");
    let long = format!("a:rstring={}", "x".repeat(65_536));
    let hashes = |count: usize| vec!["hash(a) == 1"; count].join(" || ");
    // subscription, properties, whether it is selected, steps at most
    let table = [
        (
            "kind == \"a\" && price > 10.5".to_owned(),
            "kind:rstring=a price:float64=11.0".to_owned(),
            Selected::Yes,
            300,
        ),
        (any_of(1_500), "a:int64=1499".to_owned(), Selected::Yes, 210_000),
        ("\"text-9999\" in l".to_owned(), format!("l:list<rstring>={}", texts(10_000)), Selected::Yes, 200_000),
        ("hash(a) == 1".to_owned(), long.clone(), Selected::No, 70_000),
        (hashes(4), long.clone(), Selected::No, 300_000),
        (hashes(1_000), long, Selected::TooCostly, 700_000),
        (any_of(5_000), "a:int64=0".to_owned(), Selected::TooCostly, 270_000),
    ];
    for (text, given, expected, most) in table {
        let selection = Expression::parse(&text, &Limits::default()).unwrap().select(&properties(&given));
        let shown = text.chars().take(40).collect::<String>();
        assert_eq!(selection.selected, expected, "{shown}");
        assert!(selection.steps <= most, "{shown}: {} steps", selection.steps);
    }
}
