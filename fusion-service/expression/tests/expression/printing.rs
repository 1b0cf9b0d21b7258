//! What the compiler prints (rules expression-9 and expression-10).

use spl_expression::{Expression, Intrinsics, Limits};

fn intrinsics(channel: i64) -> Intrinsics {
    Intrinsics { channel, max_channels: 12, local_channel: channel % 3, local_max_channels: 3 }
}

fn parse(text: &str) -> Result<Expression, spl_expression::Error> {
    Expression::parse(text, &Limits::default())
}

fn fold(text: &str, channel: i64) -> String {
    parse(text).and_then(|expression| expression.substitute_and_fold(&intrinsics(channel))).unwrap().to_string()
}

/// Folds in channel 5 and checks that what was printed is final.
#[track_caller]
fn check(table: &[(&str, &str)]) {
    for (text, printed) in table {
        assert_eq!(fold(text, 5), *printed, "folding {text}");
        assert_eq!(parse(printed).unwrap().to_string(), *printed, "printing {printed}");
        assert_eq!(fold(printed, 5), *printed, "folding {printed} again");
    }
}

#[test]
fn examples_of_the_reference() {
    check(&[
        ("a==1", "a == 1"),
        ("a == 'x'", "a == \"x\""),
        ("1 + getChannel() * 2", "11"),
        ("x * 2 > 3 && (y + 1 + 2) < 4", "x * 2 > 3 && (y + 3) < 4"),
        ("(1)", "1"),
        ("((a == 1) && (2 == 2))", "((a == 1) && true)"),
        ("a & 1 == 1", "a & true"),
        ("false && a", "false && a"),
        ("1e3 == x", "1000.0 == x"),
        ("x - 1 + 10", "x + 9"),
        ("x - 1 - 2 - 3", "x - 6"),
        ("x % 5 * 2", "x % 5 * 2"),
        ("6 / 2 * x", "3 * x"),
        ("(x + y) * z", "(x + y) * z"),
        ("x - (1 - 2)", "x - -1"),
        ("((\"a\" + ('b'))) == x", "\"ab\" == x"),
        ("(kind == \"bargains\") && (category == \"tech\")", "(kind == \"bargains\") && (category == \"tech\")"),
    ]);
    assert_eq!(fold("a  ==  getChannel() && b == \"x\" && (1+2 == 3)", 0), "a == 0 && b == \"x\" && true");
}

#[test]
fn corrected_against_the_reference() {
    check(&[
        // It swaps the operands when the integer is on the left.
        ("1 < 2.5", "true"),
        ("3 - 1.5", "1.5"),
        ("1 < 2.5 && 3 - 1.5 > x", "true && 1.5 > x"),
        ("10 / 4.0", "2.5"),
        // It makes `x * 2` of it, which is wrong unless 3 divides x.
        ("x / 3 * 6", "x / 3 * 6"),
        // It would print a negative float, which the language cannot read.
        ("1.5 - 3 > x", "1.5 - 3 > x"),
        ("(1.5 - 3) * x", "(1.5 - 3) * x"),
        ("((1.5 - 3)) * x", "((1.5 - 3)) * x"),
        // Still, what follows from it is folded.
        ("1.5 - 3 < 0", "true"),
        ("1.5 - 3 + 4", "2.5"),
        ("(0.0 * -1) == x", "(0.0 * -1) == x"),
        ("1.0 / 0 == x", "1.0 / 0 == x"),
        // It does not compare booleans.
        ("(1 == 1) == (2 == 3)", "false"),
        // It puts quotes around quotes.
        ("a == 'say \"x\"'", "a == 'say \"x\"'"),
        ("'\"' + \"'\" == a", "'\"' + \"'\" == a"),
    ]);
}

#[test]
fn channel_functions() {
    let text = "a == getChannel() && b == getLocalChannel() && c == getMaxChannels() && d == getLocalMaxChannels()";
    assert_eq!(fold(text, 5), "a == 5 && b == 2 && c == 12 && d == 3");
    let outside = parse(text).unwrap().substitute_and_fold(&Intrinsics::OUTSIDE_REGIONS).unwrap();
    assert_eq!(outside.to_string(), "a == -1 && b == -1 && c == 0 && d == 0");
    assert_eq!(parse(text).unwrap().to_string(), text);
    assert_eq!(fold("n % getMaxChannels() == getChannel()", 5), "n % 12 == 5");
    assert_eq!(fold("\"channel\" + (rstring)getChannel() == c", 4), "\"channel4\" == c");
}

#[test]
fn logical_operators() {
    check(&[
        ("a && 1 == 2", "false"),
        ("1 == 2 && a", "false"),
        ("a || 1 == 1", "true"),
        ("a && 1 == 1", "a && true"),
        ("1 == 1 && a && b", "true && a && b"),
        ("a || b && 1 == 2", "a || false"),
        ("a || 1 == 2 || 2 == 2", "true"),
        ("!(1 == 2)", "true"),
        ("!a && !(b)", "!a && !(b)"),
        ("!true", "!true"),
        // False decides, whatever the other side.
        ("1 == 2 && 1 / 0 == 1", "false"),
    ]);
}

#[test]
fn arithmetic() {
    check(
        &[
            ("12 - 2 - 3", "7"),
            ("4 - ((1 - 2) + 3) * 2", "0"),
            ("2 << 3 << 4", "256"),
            ("-7 / 2", "-3"),
            ("-7 % 3", "-1"),
            ("7 / -2", "-3"),
            ("~5", "-6"),
            ("5 & 3 | 8 ^ 1", "9"),
            ("9223372036854775807 + 1", "9223372036854775808"),
            ("'a' + \"b\"", "\"ab\""),
            ("(int64)(3.99)", "3"),
            ("(rstring)1e10", "\"1.0E10\""),
            ("(boolean)'TRUE'", "true"),
            ("(float64)(int64)\"12\"", "12.0"),
            ("hash(\"forty-two\")", "2032045325"),
            ("hash(4294967296)", "31"),
            ("hash(x + 1 + 1)", "hash(x + 2)"),
            ("(int64)x[ 1+1 ]", "(int64)x[2]"),
            ("x in (y)", "x in (y)"),
            ("a < b in c", "a < b in c"),
            ("7 % 4.5", "2.5"),
        ][..21],
    );
}

#[test]
fn chains() {
    check(&[
        ("x + 1 + 2", "x + 3"),
        ("x + 1 - 1", "x + 0"),
        ("x + 1 - 10", "x - 9"),
        ("x - -1", "x - -1"),
        ("x - -1 - 2", "x - 1"),
        ("x + 1 + y + 2 + 3", "x + 1 + y + 5"),
        ("1 + 2 + x + 3", "3 + x + 3"),
        ("x * 2 * 3", "x * 6"),
        ("x * 6 / 2", "x * 3"),
        ("x * 3 / 2", "x * 3 / 2"),
        ("x * 3 / 0", "x * 3 / 0"),
        ("x / 2 / 3", "x / 6"),
        ("x / 2 / 0", "x / 2 / 0"),
        ("x + 0.5 + 0.5", "x + 0.5 + 0.5"),
        ("x * 2 + 1 + 1", "x * 2 + 2"),
        ("x << 1 << 1", "x << 1 << 1"),
    ]);
}

#[test]
fn constants_without_a_value() {
    let table = [
        ("5 / 0 == 1", 2, "integer division by zero"),
        ("x == 5 % 0", 7, "integer division by zero"),
        ("1 << 1000000000 == x", 2, "an integer of more than 1024 bits"),
        ("a && 1 == 'x'", 7, "== cannot be applied to int64 and rstring"),
        ("1 && x", 2, "&& cannot be applied to int64"),
        ("(boolean)3.14", 0, "float64 cannot be converted to boolean"),
        ("(int64)'x' == y", 0, "rstring cannot be converted to int64"),
        ("!1", 0, "! cannot be applied to int64"),
        ("~1.5", 0, "~ cannot be applied to float64"),
        ("1 in 'x'", 2, "in cannot be applied to int64 and rstring"),
        ("'x'[0] == y", 3, "[ ] cannot be applied to rstring and int64"),
        ("(1 == 1) < (1 == 1)", 9, "< cannot be applied to boolean and boolean"),
    ];
    for (text, offset, message) in table {
        let error = parse(text).unwrap().substitute_and_fold(&intrinsics(0)).unwrap_err();
        assert_eq!((error.offset, error.message.as_str()), (offset, message), "{text}");
    }
}

#[test]
fn malformed() {
    let table = [
        ("", 0, "an operand is missing at the end"),
        ("  ", 2, "an operand is missing at the end"),
        ("a b", 2, "an operator or the end is expected instead of b"),
        (
            "x-1 == 2",
            1,
            "an operator or the end is expected instead of -1; a sign belongs to its number: write `- 1`, not `-1`",
        ),
        (
            "x -1 == 0",
            2,
            "an operator or the end is expected instead of -1; a sign belongs to its number: write `- 1`, not `-1`",
        ),
        ("x == -1.5", 7, "an operator or the end is expected instead of .5"),
        ("x == - 1", 5, "an operand is expected instead of -"),
        ("a.b == 1", 1, "unexpected character '.'"),
        ("getChannel () == 1", 11, "an operator or the end is expected instead of ("),
        ("getAllChannels()", 14, "an operator or the end is expected instead of ("),
        ("foo(x", 3, "an operator or the end is expected instead of ("),
        ("random garbage", 7, "an operator or the end is expected instead of garbage"),
        ("a == 1 ;", 7, "unexpected character ';'"),
        ("(a == 1", 0, "( is not closed"),
        ("a == 1)", 6, "an operator or the end is expected instead of )"),
        ("a[1", 1, "[ is not closed"),
        ("(a]", 2, "an operator or the end is expected instead of ]"),
        ("a[1)", 3, "an operator or the end is expected instead of )"),
        ("a[1 == 2]", 4, "+, -, *, /, % or ] is expected instead of =="),
        ("a[1][2]", 4, "an element has no elements"),
        ("a == 1 == b", 7, "== cannot follow a comparison or membership test of its kind"),
        ("a < b + c >= d", 10, ">= cannot follow a comparison or membership test of its kind"),
        ("a in b in c", 7, "in cannot follow a comparison or membership test of its kind"),
        ("!!a", 1, "an operand is expected instead of !"),
        ("!(int64)a", 1, "an operand without cast is expected instead of ("),
        ("hash x", 0, "hash without ("),
        ("int64 == 1", 0, "an operand is expected instead of int64; the word is reserved"),
        ("(int64 + 1)", 1, "int64 is the name of a type"),
        ("a in", 4, "an operand is missing at the end"),
        ("a == in", 5, "an operand is expected instead of in"),
        ("()", 1, "an operand is expected instead of )"),
        ("&& a", 0, "an operand is expected instead of &&"),
    ];
    for (text, offset, message) in table {
        let error = parse(text).unwrap_err();
        assert_eq!((error.offset, error.message.as_str()), (offset, message), "{text}");
    }
}

#[test]
fn limits() {
    let limits = Limits { depth: 50, ..Limits::default() };
    for (open, close) in [("(", ")"), ("hash(", ")"), ("x[", "]"), ("(int64)", "")] {
        let nested = |depth: usize| format!("{}1{}", open.repeat(depth), close.repeat(depth));
        assert!(Expression::parse(&nested(50), &limits).is_ok(), "{open}");
        let error = Expression::parse(&nested(51), &limits).unwrap_err();
        assert_eq!(error.message, "more than 50 levels of parentheses");
        assert_eq!(error.offset, open.len() * 50 + if open == "x[" { 1 } else { 0 });
    }
    // One after the other is not within each other.
    assert!(Expression::parse(&vec!["(x)"; 1_000].join(" + "), &limits).is_ok());
    let error = Expression::parse("a == 1", &Limits { length: 5, ..limits }).unwrap_err();
    assert_eq!(error.to_string(), "at offset 0: the expression has 6 octets, more than 5");
    // Whatever kind they are of, and however many of them come at the end.
    for (text, nodes, offset) in [
        ("a|b|c", 5, 3),
        ("a == 1 && (b in c)", 8, 7),
        ("a||b&&c|d^e&f<g<<h+i*j", 19, 1),
        ("!a[hash(b)] == (int64)~1", 9, 12),
    ] {
        assert!(Expression::parse(text, &Limits { nodes, ..limits }).is_ok(), "{text}");
        let error = Expression::parse(text, &Limits { nodes: nodes - 1, ..limits }).unwrap_err();
        assert_eq!(error.to_string(), format!("at offset {offset}: more than {} operands and operators", nodes - 1));
    }
    // It ends where there are too many.
    let error = Expression::parse(&"a|".repeat(100_000), &Limits { nodes: 1_000, ..limits }).unwrap_err();
    assert_eq!(error.to_string(), "at offset 1002: more than 1000 operands and operators");
}

#[test]
fn depth_without_a_limit_of_its_own_is_bounded_by_the_length_only() {
    let limits = Limits { depth: usize::MAX, ..Limits::default() };
    let depth = 200_000;
    let nested = format!("{}x{}", "(".repeat(depth), ")".repeat(depth));
    let folded = Expression::parse(&nested, &limits).unwrap().substitute_and_fold(&intrinsics(0)).unwrap();
    assert_eq!(folded.to_string(), nested);
    let sum = vec!["x"; 200_000].join(" + ");
    assert_eq!(Expression::parse(&sum, &limits).unwrap().substitute_and_fold(&intrinsics(0)).unwrap().to_string(), sum);
}
