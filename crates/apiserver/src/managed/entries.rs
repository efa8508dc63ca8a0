//! `metadata.managedFields`: who owns what, as objects carry it.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::set::FieldSet;

/// Update managers that an object keeps apart. Beyond that the oldest are put together, as in
/// the real server.
const MAX_UPDATE_MANAGERS: usize = 10;

/// Whom the oldest updates are ascribed to once there are too many managers.
const ANCIENT_CHANGES: &str = "ancient-changes";

/// How a manager came to own its fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Operation {
    Apply,
    Update,
}

impl Operation {
    fn as_str(self) -> &'static str {
        match self {
            Self::Apply => "Apply",
            Self::Update => "Update",
        }
    }
}

/// Who owns fields. Managers that apply have one entry for all versions, others one a version.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Manager {
    pub(super) name: String,
    pub(super) operation: Operation,
    /// Empty for managers that apply.
    api_version: String,
    pub(super) subresource: String,
}

impl Manager {
    pub(super) fn new(
        name: &str,
        operation: Operation,
        api_version: &str,
        subresource: &str,
    ) -> Self {
        let api_version = match operation {
            Operation::Apply => "",
            Operation::Update => api_version,
        };
        let name = if name.is_empty() { "unknown" } else { name };
        Self {
            name: name.to_owned(),
            operation,
            api_version: api_version.to_owned(),
            subresource: subresource.to_owned(),
        }
    }

    /// The manager as conflicts name it.
    pub(super) fn describe(&self) -> String {
        let mut text = format!("{:?}", self.name);
        if !self.subresource.is_empty() {
            text = format!("{text} with subresource {:?}", self.subresource);
        }
        if self.operation == Operation::Update {
            text = format!("{text} using {}", self.api_version);
        }
        text
    }
}

/// What a manager owns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Owned {
    pub(super) fields: FieldSet,
    /// The version whose fields these are.
    pub(super) api_version: String,
    /// When the manager last changed something, as RFC 3339.
    pub(super) time: Option<String>,
}

/// Everybody who owns fields of an object.
pub(super) type Managers = BTreeMap<Manager, Owned>;

/// Reads `metadata.managedFields`.
///
/// # Errors
///
/// Fails on entries that the server did not write.
pub(super) fn read(list: &Value) -> Result<Managers, String> {
    let mut managers = Managers::new();
    for entry in list.as_array().into_iter().flatten() {
        let text = |field: &str| {
            entry
                .get(field)
                .and_then(Value::as_str)
                .unwrap_or_default()
                .to_owned()
        };
        let operation = match text("operation").as_str() {
            "Apply" => Operation::Apply,
            "Update" => Operation::Update,
            _ => return Err("operation must be `Apply` or `Update`".to_owned()),
        };
        let api_version = text("apiVersion");
        if api_version.is_empty() {
            return Err("apiVersion must not be empty".to_owned());
        }
        if text("fieldsType") != "FieldsV1" {
            return Err(format!("fieldsType {:?} is unknown", text("fieldsType")));
        }
        let fields = match entry.get("fieldsV1") {
            None | Some(Value::Null) => FieldSet::default(),
            Some(fields) => FieldSet::from_json(fields)?,
        };
        let manager = Manager {
            name: text("manager"),
            operation,
            api_version: match operation {
                Operation::Apply => String::new(),
                Operation::Update => api_version.clone(),
            },
            subresource: text("subresource"),
        };
        let time = Some(text("time")).filter(|t| !t.is_empty());
        let owned = Owned {
            fields,
            api_version,
            time,
        };
        managers.insert(manager, owned);
    }
    Ok(managers)
}

/// True when a client asks for all entries to be forgotten: `[]`, or `[{}]`.
pub(super) fn is_reset(list: &Value) -> bool {
    match list.as_array().map(Vec::as_slice) {
        Some([]) => true,
        Some([only]) => only.as_object().is_some_and(serde_json::Map::is_empty),
        _ => false,
    }
}

/// The managers as `metadata.managedFields`; null when there are none.
pub(super) fn write(managers: &Managers) -> Value {
    let mut sorted: Vec<(&Manager, &Owned)> = managers.iter().collect();
    // Times have one form and one zone, so they sort as texts.
    sorted.sort_by(|(a, of_a), (b, of_b)| {
        (a.operation.as_str(), &of_a.time, &a.name)
            .cmp(&(b.operation.as_str(), &of_b.time, &b.name))
            .then_with(|| of_a.api_version.cmp(&of_b.api_version))
            .then_with(|| a.subresource.cmp(&b.subresource))
    });
    if sorted.is_empty() {
        return Value::Null;
    }
    let entries = sorted.into_iter().map(|(manager, owned)| {
        let mut entry = json!({
            "manager": manager.name,
            "operation": manager.operation.as_str(),
            "apiVersion": owned.api_version,
            "fieldsType": "FieldsV1",
            "fieldsV1": owned.fields.to_json(),
        });
        if let Some(time) = &owned.time {
            entry["time"] = json!(time);
        }
        if !manager.subresource.is_empty() {
            entry["subresource"] = json!(manager.subresource);
        }
        entry
    });
    entries.collect()
}

/// Puts the oldest updates of each version together once there are too many update managers.
pub(super) fn cap(managers: &mut Managers) {
    let mut updaters: Vec<Manager> = managers
        .keys()
        .filter(|m| m.operation == Operation::Update)
        .cloned()
        .collect();
    let mut count = updaters.len();
    updaters.sort_by_key(|m| (managers[m].time.clone(), m.clone()));
    let mut first_of: BTreeMap<String, Manager> = BTreeMap::new();
    for manager in updaters {
        if count <= MAX_UPDATE_MANAGERS {
            return;
        }
        let version = managers[&manager].api_version.clone();
        let Some(first) = first_of.get(&version) else {
            first_of.insert(version, manager);
            continue;
        };
        let bucket = Manager::new(ANCIENT_CHANGES, Operation::Update, &version, "");
        let older = managers.remove(&bucket).or_else(|| managers.remove(first));
        if let (Some(older), Some(newer)) = (older, managers.remove(&manager)) {
            let both = Owned {
                fields: older.fields.union(&newer.fields),
                ..newer
            };
            managers.insert(bucket, both);
            count -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(name: &str, operation: &str, time: &str) -> Value {
        json!({
            "manager": name, "operation": operation, "apiVersion": "v1", "time": time,
            "fieldsType": "FieldsV1", "fieldsV1": {"f:data": {format!("f:{name}"): {}}},
        })
    }

    #[test]
    fn entries_are_sorted_by_operation_time_and_name() {
        let (early, late) = ("2026-01-01T00:00:00Z", "2026-01-01T00:00:01Z");
        let mut status = entry("a", "Update", late);
        status["subresource"] = json!("status");
        let list = json!([
            entry("z", "Apply", early),
            entry("a", "Apply", late),
            entry("y", "Update", early),
            entry("a", "Update", late),
            status,
        ]);
        let mut shuffled = list.clone();
        shuffled.as_array_mut().unwrap().reverse();
        assert_eq!(write(&read(&shuffled).unwrap()), list);
        assert_eq!(write(&Managers::new()), Value::Null);
    }

    #[test]
    fn foreign_entries_are_refused() {
        for (field, value) in [
            ("operation", json!("Own")),
            ("apiVersion", json!("")),
            ("fieldsType", json!("FieldsV2")),
            ("fieldsV1", json!({"data": {}})),
        ] {
            let mut entry = entry("a", "Update", "");
            entry[field] = value;
            assert!(read(&json!([entry])).is_err(), "{field}");
        }
    }

    #[test]
    fn an_empty_list_asks_to_forget() {
        assert!(is_reset(&json!([])));
        assert!(is_reset(&json!([{}])));
        assert!(!is_reset(&json!([entry("a", "Update", "")])));
        assert!(!is_reset(&Value::Null));
    }

    #[test]
    fn the_oldest_updates_are_put_together() {
        let list: Vec<Value> = (0..12)
            .map(|i| {
                entry(
                    &format!("m{i:02}"),
                    "Update",
                    &format!("2026-01-01T00:00:{i:02}Z"),
                )
            })
            .collect();
        let mut managers = read(&json!(list)).unwrap();
        cap(&mut managers);
        assert_eq!(managers.len(), MAX_UPDATE_MANAGERS);
        let ancient = Manager::new(ANCIENT_CHANGES, Operation::Update, "v1", "");
        let owned = &managers[&ancient];
        assert_eq!(
            owned.fields.to_json(),
            json!({"f:data": {"f:m00": {}, "f:m01": {}, "f:m02": {}}})
        );
        assert_eq!(owned.time.as_deref(), Some("2026-01-01T00:00:02Z"));
    }
}
