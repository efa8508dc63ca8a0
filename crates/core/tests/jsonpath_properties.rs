//! What holds for every path and every object, and the limits that are ours.

#![allow(
    clippy::unwrap_used,
    clippy::unwrap_in_result,
    reason = "all of this is test code; the exemption in clippy.toml covers test functions only"
)]

use muster_core::jsonpath::{EvalError, JsonPath, MAX_PATH_BYTES, MAX_RANGES};
use proptest::prelude::*;
use serde_json::{Value, json};

/// JSON of a few levels, with keys and texts that mean something to the grammar.
fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        "[a-c.\\\\'\" é]{0,3}".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 32, 4, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            proptest::collection::btree_map("[a-c.\\\\'\" é]{0,2}", inner, 0..4)
                .prop_map(|entries| entries.into_iter().collect::<Value>()),
        ]
    })
}

/// Texts that look like paths: fragments of the grammar in any order.
fn any_path() -> impl Strategy<Value = String> {
    let fragment = prop::sample::select(vec![
        ".",
        "..",
        "*",
        "a",
        "b",
        "$",
        "@",
        " ",
        "\\",
        "\\.",
        "[",
        "]",
        "[0]",
        "[-1]",
        "[*]",
        "[0:1]",
        "[::2]",
        "[:",
        "[0,1]",
        "['a']",
        "['a','b']",
        "'",
        "\"",
        "\"a\"",
        "[?(",
        ")]",
        "[?(@.a)]",
        "[?(@.a==1)]",
        "[?(@==\"a\")]",
        "==",
        "<",
        "=",
        "!",
        "}{",
        "}",
        "{",
        "range ",
        "end",
        "true",
        "1",
        "-",
        "1.5",
        "99999999999999999999",
        "\n",
        "é",
        "\\x4",
        "\u{1F389}",
        ",",
        ":",
        "(",
        ")",
    ]);
    prop_oneof![
        3 => proptest::collection::vec(fragment, 0..12).prop_map(|parts| parts.concat()),
        1 => any::<String>(),
    ]
}

/// One step down, with the way to write it.
#[derive(Debug, Clone)]
enum Down {
    Key(String),
    Quoted(String),
    Index(i64),
}

fn any_down() -> impl Strategy<Value = Down> {
    prop_oneof![
        "[a-c.\\\\'\" é]{1,2}".prop_map(Down::Key),
        "[a-c.é]{1,2}".prop_map(Down::Quoted),
        (-3_i64..3).prop_map(Down::Index),
    ]
}

/// A key as text; every character that means something to the grammar is escaped.
fn escaped(key: &str) -> String {
    key.chars().fold(String::new(), |mut text, character| {
        if matches!(character, '.' | ' ' | '\\') {
            text.push('\\');
        }
        text.push(character);
        text
    })
}

fn written(down: &Down) -> String {
    match down {
        Down::Key(key) => format!(".{}", escaped(key)),
        Down::Quoted(key) => format!("['{}']", escaped(key)),
        Down::Index(index) => format!("[{index}]"),
    }
}

/// The plain meaning of simple steps: a value, nothing, or an error.
fn walk<'a>(object: &'a Value, way: &[Down]) -> Result<Option<&'a Value>, ()> {
    let mut current = object;
    for down in way {
        let next = match (down, current) {
            // A backslash in a key cannot be written: it always means the character after it.
            (Down::Key(key), Value::Object(entries)) => entries.get(&key.replace('\\', "")),
            // Between quotes it can, where there is no key of the other meaning.
            (Down::Quoted(key), Value::Object(entries)) => {
                entries.get(key).or_else(|| entries.get(&escaped(key)))
            }
            (Down::Key(_) | Down::Quoted(_), _) | (Down::Index(_), Value::Null) => None,
            (Down::Index(index), Value::Array(items)) => {
                let from_end = usize::try_from(-index).unwrap_or_default();
                let at = match usize::try_from(*index) {
                    Ok(at) => Some(at),
                    Err(_) => items.len().checked_sub(from_end),
                };
                at.and_then(|at| items.get(at))
            }
            (Down::Index(_), _) => return Err(()),
        };
        match next {
            Some(value) => current = value,
            None => return Ok(None),
        }
    }
    Ok(Some(current))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_path_and_no_object_make_it_panic(path in any_path(), object in any_json()) {
        if let Ok(compiled) = JsonPath::parse(&path) {
            let once = format!("{:?}", compiled.eval(&object));
            prop_assert_eq!(once, format!("{:?}", compiled.eval(&object)));
        }
    }

    #[test]
    fn simple_paths_find_what_a_walk_finds(
        way in proptest::collection::vec(any_down(), 1..4),
        object in any_json(),
    ) {
        let path: String = way.iter().map(written).collect();
        let compiled = JsonPath::parse(&path).unwrap();
        match (walk(&object, &way), compiled.eval(&object)) {
            (Err(()), outcome) => prop_assert!(outcome.is_err(), "{path}: {outcome:?}"),
            (Ok(expected), outcome) => {
                let outcome = outcome.unwrap();
                prop_assert_eq!(outcome.len(), 1);
                let found: Vec<&Value> = outcome[0].iter().map(|found| found.value()).collect();
                prop_assert_eq!(found, Vec::from_iter(expected), "{}", path);
            }
        }
    }
}

#[test]
fn a_path_that_multiplies_its_results_is_given_up() {
    let mut object = json!("leaf");
    for _ in 0..100 {
        object = json!({ "x": object });
    }
    let path = JsonPath::parse("..x..x..x..x..x").unwrap();
    assert_eq!(path.eval(&object).unwrap_err(), EvalError::TooManyVisits);
    let filter = JsonPath::parse(".l[?(@..x..x..x..x..x)]").unwrap();
    assert_eq!(
        filter.eval(&json!({ "l": [object] })).unwrap_err(),
        EvalError::TooManyVisits,
        "an existence filter hides other errors, not this one"
    );
}

/// Not only values that are found count: here nearly none are.
#[test]
fn a_path_that_looks_at_values_again_and_again_is_given_up() {
    let nulls = json!({"a": vec![json!(null); 100_000], "n": {"l": vec![0; 100_000]}});
    let again = |text: &str| vec![text; 1_000].join(",");
    for path in [
        format!(".a[*][{}]", again("0")),
        format!("['n',{}]..", again("'n'")),
        format!(".a[*]['x',{}]", again("'x'")),
        format!(".n.l[{}][?(@.x)]", again(":")),
    ] {
        let parsed = JsonPath::parse(&path).unwrap();
        assert_eq!(
            parsed.eval(&nulls).unwrap_err(),
            EvalError::TooManyVisits,
            "{}",
            &path[..20]
        );
    }
    let text = "x".repeat(8 << 10);
    let equal = format!(".l[{}][?(@==\"{text}\")]", again(":"));
    let object = json!({"l": vec![vec![text; 100]; 100]});
    let error = JsonPath::parse(&equal).unwrap().eval(&object).unwrap_err();
    assert_eq!(error, EvalError::TooManyVisits);
}

#[test]
fn ranges_nest_to_a_limit() {
    let nested = |depth: usize| "range @}{".repeat(depth) + "@";
    let at_limit = JsonPath::parse(&nested(MAX_RANGES)).unwrap();
    assert!(at_limit.eval(&json!({})).is_ok());
    let beyond = JsonPath::parse(&nested(MAX_RANGES + 1)).unwrap();
    assert_eq!(
        beyond.eval(&json!({})).unwrap_err(),
        EvalError::RangesTooDeep
    );
}

#[test]
fn null_missing_and_empty_give_nothing_and_no_error() {
    let object = json!({
        "null": null, "empty": [], "two": [1, 2], "nulls": [null], "list": [{"x": null}, {"x": 1}],
    });
    for path in [
        ".missing[0]",
        ".missing[?(@.x==1)]",
        ".null[0]",
        ".null[1:2]",
        ".null[?(@.x==1)]",
        ".null[?(@.x)]",
        ".null.x",
        ".null[*]",
        ".empty[0]",
        ".empty[-1]",
        ".empty[0].x",
        ".empty[1:]",
        ".empty[?(@.x==1)]",
        ".two[2]",
        ".two[-3]",
        ".two[-3].x",
        ".two[2:]",
        ".two[-1:1]",
        ".two[9223372036854775807]",
        ".two[-9223372036854775808]",
        ".list[?(@.x==2)]",
        ".nulls[?(@>1)]",
        "range .empty[*]}{[0]}{end",
        "range .empty[*]}{@}{end",
        "range .missing}{[?(@.x==1)]}{end",
    ] {
        let path = JsonPath::parse(path).unwrap();
        let found = path.eval(&object).unwrap();
        assert!(
            found.iter().all(|block| block.is_empty()),
            "{path:?}: {found:?}"
        );
    }
    let found = |path: &str| {
        let path = JsonPath::parse(path).unwrap();
        let found = path.eval(&object).unwrap();
        let values = found.iter().flat_map(|block| block.iter());
        values.map(|found| found.value().clone()).collect::<Value>()
    };
    // What is there is found beside what is not.
    assert_eq!(found(".two[1:9]"), json!([2]));
    assert_eq!(found(".two[-9:1]"), json!([1]));
    assert_eq!(found(".two[0,5]"), json!([1]));
    assert_eq!(found(".list[?(@.x==1)].x"), json!([1]));
    assert_eq!(found(".list[?(@.x)].x"), json!([1]));
    assert_eq!(found("range .nulls[*]}{@}{end"), json!([null]));
    // The end of an empty range is found, and what follows counts.
    assert_eq!(found("range .empty[*]}{@}{end}{.two[0]"), json!([1]));
}

#[test]
fn a_mistake_of_the_path_itself_is_an_error_whatever_the_list_holds() {
    for list in [json!([]), json!([1, 2, 3, 4, 5])] {
        let object = json!({ "list": list });
        let path = JsonPath::parse(".list[3:1]").unwrap();
        let reversed = EvalError::StartAfterEnd { start: 3, end: 1 };
        assert_eq!(path.eval(&object).unwrap_err(), reversed);
    }
    let object = json!({"text": "x", "object": {}});
    for path in [".text[0]", ".object[0]", ".text[?(@.x)]", ".object[?(@.x)]"] {
        assert!(
            JsonPath::parse(path).unwrap().eval(&object).is_err(),
            "{path}"
        );
    }
}

#[test]
fn a_quoted_key_may_hold_dots() {
    let object = json!({
        "used": {"requests.cpu": "2", "limits": {"cpu": "4"}, "limits.cpu": "never", "a b": 1},
        "list": [{"k.x": 1, "n": "first"}, {"k.x": 2, "n": "second"}],
    });
    let found = |path: &str| {
        let path = JsonPath::parse(path).unwrap();
        let found = path.eval(&object).unwrap();
        let values = found[0].iter().map(|found| found.value().clone());
        values.collect::<Vec<_>>()
    };
    assert_eq!(found(".used['requests.cpu']"), ["2"]);
    assert_eq!(found(".used.requests\\.cpu"), ["2"]);
    assert_eq!(found(".used['requests\\.cpu']"), ["2"]);
    assert_eq!(found(".used['a b']"), [1]);
    assert_eq!(found(".used['limits.cpu']"), ["4"], "as kubectl reads it");
    assert_eq!(found(".used['memory.cpu']"), [""; 0]);
    assert_eq!(found(".used['requests.cpu','limits.cpu']"), ["2", "4"]);
    assert_eq!(found(".list[?(@['k.x']==2)].n"), ["second"]);
    let path = JsonPath::parse("['used.x']").unwrap();
    assert!(path.may_read("used") && path.may_read("used.x") && !path.may_read("list"));
}

#[test]
fn integers_beyond_64_bits_signed_are_compared_exactly_or_not_at_all() {
    let object: Value = serde_json::from_str(
        r#"{"l": [{"n": 9223372036854775807}, {"n": 9223372036854775808},
            {"n": 9223372036854775809}, {"n": 18446744073709551615}]}"#,
    )
    .unwrap();
    let found = |path: &str| {
        let path = JsonPath::parse(path).unwrap();
        let found = path.eval(&object).unwrap();
        let values = found[0].iter().map(|found| found.value().clone());
        values.collect::<Value>()
    };
    assert_eq!(
        found(".l[?(@.n==9223372036854775808)].n"),
        json!([9_223_372_036_854_775_808_u64])
    );
    assert_eq!(
        found(".l[?(@.n<9223372036854775809)].n")
            .as_array()
            .unwrap()
            .len(),
        2
    );
    let rounded: Value = serde_json::from_str(r#"{"l": [{"n": 18446744073709551617}]}"#).unwrap();
    for path in [".l[?(@.n==18446744073709551618)]", ".l[?(@.n>1.5)]"] {
        let path = JsonPath::parse(path).unwrap();
        let error = path.eval(&rounded).unwrap_err();
        assert!(matches!(error, EvalError::Inexact(_)), "{error}");
    }
}

#[test]
fn a_path_is_bounded_in_length() {
    let at_limit = ".a".repeat(MAX_PATH_BYTES / 2);
    assert!(JsonPath::parse(&at_limit).is_ok());
    let beyond = JsonPath::parse(&(at_limit + "b")).unwrap_err();
    assert_eq!(
        beyond.to_string(),
        "the path has 16385 bytes, at most 16384 are allowed"
    );
}

#[test]
fn every_step_and_every_compared_text_is_paid_for() {
    // Each step gives nothing, but has as many values to look at.
    let wide = json!({ "l": vec![1; 200_000] });
    let path = format!(".l[*]['{}']", vec!["a"; 1_000].join("','"));
    let path = JsonPath::parse(&path).unwrap();
    assert_eq!(path.eval(&wide).unwrap_err(), EvalError::TooManyVisits);
    // Two long texts that are equal to their last letter, compared over and over.
    let long = "x".repeat(500_000);
    let object = json!({ "l": [{"a": long, "b": long}] });
    let many = vec!["'l'"; 100].join(",");
    let path = format!("['x',{many}][?(@.a==@.b)]");
    let nested = json!({ "l": {"l": [{"a": long, "b": long}]}, "x": object });
    let path = JsonPath::parse(&format!("[{many}]{path}")).unwrap();
    assert_eq!(path.eval(&nested).unwrap_err(), EvalError::TooManyVisits);
    // What is left over of one path is what the next one has.
    let path = JsonPath::parse(".l[*]").unwrap();
    let mut visits = 500_000;
    assert!(path.eval_within(&wide, &mut visits).is_ok());
    assert!(path.eval_within(&wide, &mut visits).is_ok());
    assert_eq!(
        path.eval_within(&wide, &mut visits).unwrap_err(),
        EvalError::TooManyVisits
    );
}
