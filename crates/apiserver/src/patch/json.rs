//! JSON patches (RFC 6902) within bounds on what they make.
//!
//! A few operations can grow an object beyond all memory: `copy` of a field into itself doubles it
//! each time, and nests it as well.

use json_patch::{Patch, PatchOperation};
use serde_json::Value;

use crate::object::{MAX_DEPTH, depth};
use crate::status::{ApiError, ApiResult};

/// Most operations in one patch, as in the real server.
const MAX_OPERATIONS: usize = 10_000;
/// Most bytes that the copies of one patch may add, as in the real server.
const MAX_COPIED_BYTES: usize = 3 << 20;
/// Most values that the operations of one patch may move or look at: an item that comes or goes
/// at the front of a list moves all others.
const MAX_STEPS: usize = 50_000_000;

/// Why a patch is refused while it is applied.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
enum Refused {
    #[error("{0}")]
    Operation(String),
    #[error("copies add more than {MAX_COPIED_BYTES} bytes")]
    Copied,
    #[error("the object would nest more than {MAX_DEPTH} levels deep")]
    TooDeep,
    #[error("the operations move more than {MAX_STEPS} values")]
    TooMuch,
}

/// Parses a patch.
pub(super) fn parse(body: &[u8]) -> ApiResult<Patch> {
    let patch: Patch = serde_json::from_slice(body)
        .map_err(|e| ApiError::bad_request(format!("error decoding patch: {e}")))?;
    let count = patch.0.len();
    if count > MAX_OPERATIONS {
        return Err(ApiError::too_large_because(&format!(
            "The allowed maximum operations in a JSON patch is {MAX_OPERATIONS}, got {count}"
        )));
    }
    Ok(patch)
}

/// Changes `target`, which stays as it is if the patch is refused.
pub(super) fn apply(patch: &Patch, target: &mut Value) -> ApiResult<()> {
    let mut changed = target.clone();
    let mut bounds = Bounds {
        copied: MAX_COPIED_BYTES,
        steps: MAX_STEPS,
        depth: depth(target),
    };
    for operation in &patch.0 {
        bounds
            .apply(operation, &mut changed)
            .map_err(|e| ApiError::unprocessable(&e.to_string()))?;
    }
    *target = changed;
    Ok(())
}

/// What is left of the bounds.
struct Bounds {
    copied: usize,
    steps: usize,
    /// At most this deep is the object.
    depth: usize,
}

impl Bounds {
    fn apply(&mut self, operation: &PatchOperation, target: &mut Value) -> Result<(), Refused> {
        match operation {
            PatchOperation::Add(add) => {
                self.shift(target, add.path.as_str())?;
                self.place(target, add.path.as_str(), depth(&add.value))?;
            }
            PatchOperation::Replace(replace) => {
                self.place(target, replace.path.as_str(), depth(&replace.value))?;
            }
            PatchOperation::Remove(remove) => self.shift(target, remove.path.as_str())?,
            PatchOperation::Move(mov) => {
                self.shift(target, mov.from.as_str())?;
                self.shift(target, mov.path.as_str())?;
                let below = self.depth.saturating_sub(levels(mov.from.as_str()));
                self.place(target, mov.path.as_str(), below)?;
            }
            PatchOperation::Copy(copy) => {
                self.shift(target, copy.path.as_str())?;
                if let Some(value) = target.pointer(copy.from.as_str()) {
                    let size = size(value, self.copied).ok_or(Refused::Copied)?;
                    self.copied -= size;
                    self.place(target, copy.path.as_str(), depth(value))?;
                }
            }
            // Costs no more than the value in the patch is long.
            PatchOperation::Test(_) => {}
        }
        json_patch::patch_unsafe(target, std::slice::from_ref(operation))
            .map_err(|e| Refused::Operation(e.to_string()))
    }

    fn step(&mut self, steps: usize) -> Result<(), Refused> {
        self.steps = self.steps.checked_sub(steps).ok_or(Refused::TooMuch)?;
        Ok(())
    }

    /// Pays for the items that an item at this path moves.
    fn shift(&mut self, target: &Value, path: &str) -> Result<(), Refused> {
        self.step(1 + levels(path))?;
        let Some((parent, last)) = path.rsplit_once('/') else {
            return Ok(());
        };
        match target.pointer(parent) {
            Some(Value::Array(items)) => {
                let at = last.parse().unwrap_or(items.len());
                self.step(items.len().saturating_sub(at))
            }
            _ => Ok(()),
        }
    }

    /// A value that is so deep comes to this path.
    fn place(&mut self, target: &Value, path: &str, below: usize) -> Result<(), Refused> {
        let levels = levels(path);
        if levels + below > MAX_DEPTH {
            // What is known may be too much, since values have left meanwhile.
            self.step(size(target, usize::MAX).unwrap_or(usize::MAX))?;
            self.depth = depth(target);
            if levels + below.min(self.depth) > MAX_DEPTH {
                return Err(Refused::TooDeep);
            }
        }
        self.depth = self.depth.max(levels + below);
        Ok(())
    }
}

/// How many levels a path leads down.
fn levels(path: &str) -> usize {
    path.matches('/').count()
}

/// Bytes of a value as JSON; none if there are more than `most`.
fn size(value: &Value, most: usize) -> Option<usize> {
    struct Counter {
        left: usize,
    }
    impl std::io::Write for Counter {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            match self.left.checked_sub(bytes.len()) {
                Some(left) => {
                    self.left = left;
                    Ok(bytes.len())
                }
                None => Err(std::io::ErrorKind::FileTooLarge.into()),
            }
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let mut counter = Counter { left: most };
    serde_json::to_writer(&mut counter, value).ok()?;
    Some(most - counter.left)
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::StatusCode;
    use serde_json::json;

    fn patched(target: &Value, operations: &Value) -> Result<Value, String> {
        let patch = parse(operations.to_string().as_bytes()).map_err(|e| e.message)?;
        let mut changed = target.clone();
        match apply(&patch, &mut changed) {
            Ok(()) => Ok(changed),
            Err(error) => {
                assert_eq!(error.code, StatusCode::UNPROCESSABLE_ENTITY);
                assert_eq!(changed, *target, "a refused patch changes nothing");
                let details = error.details.unwrap_or_default();
                Err(details["causes"][0]["message"].as_str().unwrap().to_owned())
            }
        }
    }

    #[test]
    fn copies_into_themselves_are_refused() {
        let copy = |at: usize| json!({"op": "copy", "from": "/x", "path": format!("/x/y{at}")});
        let copies: Vec<Value> = (0..22).map(copy).collect();
        let why = patched(&json!({"x": {"a": "b".repeat(100)}}), &json!(copies)).unwrap_err();
        assert_eq!(why, "copies add more than 3145728 bytes");
        assert!(patched(&json!({"x": {}}), &json!(copies[..10])).is_ok());
    }

    #[test]
    fn copied_bytes_add_up() {
        let large = json!({"x": "b".repeat(1 << 20), "l": []});
        let copy = json!({"op": "copy", "from": "/x", "path": "/l/-"});
        assert!(patched(&large, &json!([copy, copy])).is_ok());
        let why = patched(&large, &json!([copy, copy, copy])).unwrap_err();
        assert_eq!(why, "copies add more than 3145728 bytes");
    }

    #[test]
    fn what_would_nest_too_deep_is_refused_however_it_comes_about() {
        let nested = |levels: usize| {
            let mut value = json!({});
            for _ in 0..levels {
                value = json!({"a": value});
            }
            value
        };
        let add = |levels: usize| {
            let path = "/a".repeat(50);
            json!([{"op": "add", "path": path, "value": nested(levels)}])
        };
        assert!(patched(&nested(60), &add(MAX_DEPTH - 51)).is_ok());
        let why = patched(&nested(60), &add(MAX_DEPTH - 49)).unwrap_err();
        assert_eq!(why, "the object would nest more than 100 levels deep");
        let target = json!({"x": nested(60), "y": nested(60)});
        for op in ["move", "copy"] {
            let path = format!("/y{}", "/a".repeat(60));
            let operation = json!([{"op": op, "from": "/x", "path": path}]);
            let why = patched(&target, &operation).unwrap_err();
            assert_eq!(why, "the object would nest more than 100 levels deep");
        }
    }

    /// The bound that is kept is not taken for the depth.
    #[test]
    fn moves_there_and_back_are_fine() {
        let target = json!({"x": {"a": {"b": {}}}, "y": {}});
        let pair = [
            json!({"op": "move", "from": "/x", "path": "/y/x"}),
            json!({"op": "move", "from": "/y/x", "path": "/x"}),
        ];
        let operations: Vec<&Value> = pair.iter().cycle().take(2000).collect();
        assert_eq!(patched(&target, &json!(operations)).unwrap(), target);
    }

    #[test]
    fn lists_that_move_for_each_operation_have_a_budget() {
        let target = json!({"l": vec![0; 100_000]});
        let insert = json!({"op": "add", "path": "/l/0", "value": 1});
        assert!(patched(&target, &json!(vec![&insert; 100])).is_ok());
        let why = patched(&target, &json!(vec![&insert; 1000])).unwrap_err();
        assert_eq!(why, "the operations move more than 50000000 values");
    }

    #[test]
    fn operations_are_counted() {
        let test = json!({"op": "test", "path": "/a", "value": 1});
        let target = json!({"a": 1});
        assert!(patched(&target, &json!(vec![&test; MAX_OPERATIONS])).is_ok());
        let error = patched(&target, &json!(vec![&test; MAX_OPERATIONS + 1])).unwrap_err();
        assert_eq!(
            error,
            "Request entity too large: The allowed maximum operations in a JSON patch is 10000, got 10001"
        );
    }
}
