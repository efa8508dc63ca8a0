use serde_json::json;

use super::*;

fn removed(expression: &str, mut object: Value) -> Result<Value, JqError> {
    JqPath::compile(expression)?.remove(&mut object)?;
    Ok(object)
}

#[test]
#[allow(clippy::too_many_lines, reason = "a table")]
fn expressions_name_what_is_removed() {
    let object = || {
        json!({"l": [
            {"name": "a", "v": 1.0}, {"name": "b", "v": 18_446_744_073_709_551_615_u64},
            {"name": "ab", "w": null},
        ], "t": {"x": "1", "y": 2}})
    };
    let cases = [
        (".t.x", "/t/x", json!(null)),
        (".t[\"x\"]", "/t", json!({"y": 2})),
        (
            ".l[] | select(.name == \"a\") | .v",
            "/l/0",
            json!({"name": "a"}),
        ),
        (
            ".l[] | select(.name | startswith(\"a\"))",
            "/l",
            json!([object()["l"][1]]),
        ),
        (".l[0, 1]", "/l", json!([object()["l"][2]])),
        (".l[1:]", "/l", json!([object()["l"][0]])),
        (".l[-1]", "/l/2", json!(null)),
        (".l[].nothing?", "", object()),
        (".no.such.key", "", object()),
        (".l[9]", "", object()),
        ("empty", "", object()),
        (
            ".. | objects | select(has(\"v\")) | .v",
            "/l/1",
            json!({"name": "b"}),
        ),
        (".l[] | select(.name | test(\"^a.$\"))", "/l/2", json!(null)),
        (
            ".l[] | select(.name | test(\"^A.$\"; \"i\"))",
            "/l/2",
            json!(null),
        ),
        (
            ".t | (to_entries[] | select(.value == 2)) as $e | .[$e.key]",
            "/t",
            json!({"x": "1"}),
        ),
        (
            ".t[(.t | keys[] | select(. == \"y\"))]",
            "/t",
            json!({"x": "1"}),
        ),
        (".l | first, last", "/l", json!([object()["l"][1]])),
        (
            ".l[] | select(any(.name, .v; . == \"b\"))",
            "/l/1/name",
            json!("ab"),
        ),
        (
            ".t | if .y == 2 then .y else .x end",
            "/t",
            json!({"x": "1"}),
        ),
        (
            ".l[] | select([.name] | inside([\"a\", \"b\"])).name",
            "/l/1/name",
            json!(null),
        ),
        ("(.t.x // .t.y)", "/t", json!({"y": 2})),
        (
            "paths as $p | getpath($p) | select(. == 2)",
            "",
            json!(null),
        ),
        (
            ".l[] | select((.name | length) > 1 and $ENV == {} and env == {})",
            "/l/2",
            json!(null),
        ),
        (
            ".l[] | select(.name | ascii_upcase | . + \"!\" | IN(\"A!\"))",
            "/l/0",
            object()["l"][1].clone(),
        ),
        (
            ".l[] | select(\"\\(.name)-\\(.v)\" == \"a-1.0\")",
            "/l/0/name",
            json!("b"),
        ),
        (
            ".l[] | select(.v) | select(.v | tostring | tonumber == 1)",
            "/l/0/name",
            json!("b"),
        ),
        (
            ".l[] | select([.name, \"x\"] | join(\"-\") == \"a-x\")",
            "/l/0/name",
            json!("b"),
        ),
        (
            "label $f | .l[] | if .name == \"b\" then break $f else . end",
            "/l/0/name",
            json!("b"),
        ),
        (
            ".l[] | select(reduce (1, 2) as $x (0; . + $x) == 3) | .name",
            "/l/0/name",
            json!(null),
        ),
        (".l[range(1; 3)]", "/l", json!([object()["l"][0]])),
        (
            ".l[] | select(.name | index(\"b\") == 1)",
            "/l/2",
            json!(null),
        ),
    ];
    for (expression, pointer, expected) in cases {
        let result = removed(expression, object());
        let result = result.unwrap_or_else(|error| panic!("{expression}: {error}"));
        let found = result.pointer(pointer).cloned().unwrap_or_default();
        if expression.starts_with("paths") {
            assert_eq!(result["t"], json!({"x": "1"}), "{expression}");
        } else {
            assert_eq!(found, expected, "{expression}: {result}");
        }
    }
}

#[test]
fn a_live_object_may_lack_what_the_expression_goes_through() {
    let live =
        || json!({"l": [{"n": 1}, {"e": null}, {"e": [{"name": "x"}, {"name": "y"}, {}, 7]}]});
    for expression in [
        ".l[].e[] | select(.name | startswith(\"x\"))",
        ".l[].e[] | select(.name == \"x\")",
        ".l[] | .e[] | select(.name as $n | $n | test(\"x\"))",
    ] {
        let path = JqPath::compile(expression).unwrap();
        path.remove(&mut live()).unwrap_err();
        let mut changed = live();
        path.remove_from_live(&mut changed).unwrap();
        assert_eq!(
            changed["l"][2]["e"],
            json!([{"name": "y"}, {}, 7]),
            "{expression}"
        );
    }
}

#[test]
fn what_is_left_keeps_its_numbers() {
    let object = json!({"a": 1, "f": 1.0, "big": u64::MAX, "e": 1e300});
    let expected = r#"{"big":18446744073709551615,"e":1e+300,"f":1.0}"#;
    assert_eq!(removed(".a", object).unwrap().to_string(), expected);
}

#[test]
fn errors_say_what_is_wrong() {
    let object = || json!({"n": null, "s": "x", "d": {"k": "v"}});
    for (expression, text) in [
        (".d[", "failed to parse jq expression: expected "),
        (
            ".d |",
            "failed to parse jq expression: expected term, found the end",
        ),
        (
            ".spec.containers[] | invalid syntax here",
            "failed to parse jq expression: expected nothing, found \"syntax\"",
        ),
        (
            "nope",
            "failed to compile jq expression: filter nope is not defined",
        ),
        (
            "input",
            "failed to compile jq expression: filter input is not defined",
        ),
        ("$__prog_args", "failed to compile jq expression: variable "),
        (
            "debug",
            "failed to compile jq expression: filter debug is not defined",
        ),
        (
            "halt",
            "failed to compile jq expression: filter halt is not defined",
        ),
        ("import \"x\" as x; .", "failed to parse jq expression: "),
        (
            "def f: f; f",
            "failed to compile jq expression: a definition cannot be used",
        ),
        (
            ".d = 1",
            "failed to compile jq expression: an assignment cannot be used",
        ),
        (
            ".d |= 1",
            "failed to compile jq expression: an assignment cannot be used",
        ),
        (
            "select(\"x\" * 9 == .s)",
            "failed to compile jq expression: a multiplication cannot be used",
        ),
        (".n[]", "failed to execute jq expression: "),
        (".s.x", "failed to execute jq expression: "),
        ("1", "failed to execute jq expression: "),
        (".", "jq expression result is not a valid object"),
        (".d, .", "jq expression result is not a valid object"),
    ] {
        let error = removed(expression, object()).unwrap_err().to_string();
        assert!(error.starts_with(text), "{expression}: {error}");
    }
    let long = format!(".{}", "a".repeat(MAX_JQ_BYTES));
    assert_eq!(removed(&long, object()), Err(JqError::TooLong));
}

#[test]
fn deep_expressions_do_not_exhaust_the_stack() {
    for (open, close) in [
        ("(", ")"),
        ("[", "]"),
        ("{a:", "}"),
        ("\"\\(", ")\""),
        ("-", ""),
        ("try ", ""),
        ("1+", ""),
        ("1|", ""),
        (".,", ""),
        ("if 1 then ", " else 1 end"),
        ("first(", ")"),
        ("reduce 1 as $x (1;", ")"),
    ] {
        for depth in [16, 24, 31, 47, 90, 300] {
            let nested = format!("{}1{}", open.repeat(depth), close.repeat(depth));
            let expression = format!("select({nested})");
            if let Ok(path) = JqPath::compile(&expression) {
                let _ = path.remove(&mut json!({}));
            }
        }
        let deep = format!("{}1{}", open.repeat(300), close.repeat(300));
        assert_eq!(
            JqPath::compile(&deep).unwrap_err(),
            JqError::TooLong,
            "{open}"
        );
    }
}

/// What ends at a tenth of the steps ends at all of them.
const FEW_STEPS: u64 = guard::STEPS / 10;

#[test]
fn whatever_would_not_end_is_given_up() {
    let zeros = || json!({"a": vec![0; 100_000], "s": "x".repeat(500_000)});
    for expression in [
        "repeat(.)",
        "repeat(empty)",
        "select([repeat(1)])",
        "recurse(.)",
        "until(false; .)",
        "select(last(while(true; .)))",
        "select(last(range(1e15)))",
        "select([range(1e15)])",
        "select([limit(1e15; repeat(1))])",
        "select(first(range(1e15) | select(. < 0)))",
        "select(reduce range(1e15) as $x (0; $x))",
        "select(last(try repeat(error) catch repeat(.)))",
        "(repeat(.))?",
        "select(isempty(range(1e15) | empty))",
        ".a[.a[]][.a[]]",
        "select(.a | contains(.))",
        "select(.a[] + .a[] + .a[] | empty)",
        "select([.a[] | {a: (1, 2, 3, 4), b: (1, 2, 3, 4), c: (1, 2, 3, 4)}])",
        "select(.s|.+.|.+.|.+.|.+.|.+.|.+.|.+.|.+.|.+.|.+.|.+.|.+.|.+.)",
        "select(reduce range(100000) as $i (0; [.]))",
        "select(.s | [.,.]|[.,.]|[.,.]|[.,.]|[.,.]|[.,.]|[.,.]|[.,.]|[.,.]|tojson)",
        "select(.s | \"\\(.)\\(.)\\(.)\\(.)\\(.)\\(.)\\(.)\\(.)\\(.)\\(.)\")",
        "select(.s as $s | [$s, $s, $s, $s] | join($s))",
        "select(.a | .[.[1:]])",
        // What visits a whole value at each step, in value or in path mode.
        "recurse(.no)",
        "select([path(recurse(.no))])",
        "select(last(range(30000) as $i | .s | ascii_downcase))",
        "select(last(range(30000) as $i | .a | sort))",
        "select(last(range(30000) as $i | .a == .a))",
        "select(last(range(30000) as $i | .a - .a))",
        "select(last(range(30000) as $i | first(.a[])))",
        "select(last(range(30000) as $i | .a[1:] | empty))",
        "select(last(range(30000) as $i | .s as $s | {} | has($s)))",
        "select(last(range(30000) as $i | .s as $s | {} | .[$s]))",
        "select(last(range(30000) as $i | .s as $s | $s | startswith($s)))",
        "range(30000) as $i | .a[1:]",
    ] {
        let path = JqPath::compile(expression).unwrap_or_else(|e| panic!("{expression}: {e}"));
        let Err(error) = remove(&path.strict, &mut zeros(), FEW_STEPS) else {
            panic!("{expression} came to an end");
        };
        let expected = matches!(error, JqError::TimedOut)
            || error.to_string().contains("too large")
            || error.to_string().contains("index");
        assert!(
            expected,
            "{expression}: {}",
            prefix(&error.to_string(), 200)
        );
    }
    let doubled = ["(.,.,.,.)"; 9].join("|");
    let path = JqPath::compile(&format!("select({doubled}|false)")).unwrap();
    assert_eq!(
        remove(&path.strict, &mut zeros(), FEW_STEPS),
        Err(JqError::TimedOut)
    );
}
