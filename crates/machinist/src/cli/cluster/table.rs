//! Server-side tables as `kubectl` prints them.

use machinist_core::api::names::annotation::{CURRENT_CONFIG, STATE};
use serde_json::Value;

/// What `get nodes` adds to the server's columns: how far each machine is, from its annotations.
const MACHINE_COLUMNS: [(&str, &str); 2] = [("STATE", STATE), ("CONFIG", CURRENT_CONFIG)];

/// The minimum width of a column, and the space between two.
const MIN_COLUMN_WIDTH: usize = 6;
const COLUMN_GAP: usize = 3;

/// A table in a response of the server.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(in crate::cli) struct ServerTable {
    columns: Vec<TableColumn>,
    rows: Vec<TableRow>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct TableColumn {
    name: String,
    is_wide: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct TableRow {
    namespace: String,
    cells: Vec<String>,
}

impl ServerTable {
    /// Parses a response. A server without table support sends objects, whose names are shown.
    pub(in crate::cli) fn parse(response: &Value) -> Self {
        let items = |field: &str| response.get(field).and_then(Value::as_array);
        let text = |value: &Value, path: &str| {
            value.pointer(path).and_then(Value::as_str).unwrap_or_default().to_owned()
        };
        if response.get("kind").and_then(Value::as_str) != Some("Table") {
            let one = || std::slice::from_ref(response);
            let objects = items("items").map_or_else(one, Vec::as_slice);
            let row = |object: &Value| TableRow {
                namespace: text(object, "/metadata/namespace"),
                cells: vec![text(object, "/metadata/name")],
            };
            let columns = vec![TableColumn { name: "NAME".to_owned(), is_wide: false }];
            return Self { columns, rows: objects.iter().map(row).collect() };
        }
        let column = |column: &Value| TableColumn {
            name: text(column, "/name").to_uppercase(),
            is_wide: column.get("priority").and_then(Value::as_i64).unwrap_or_default() != 0,
        };
        let row = |row: &Value| TableRow {
            namespace: text(row, "/object/metadata/namespace"),
            cells: row
                .get("cells")
                .and_then(Value::as_array)
                .into_iter()
                .flatten()
                .map(cell)
                .collect(),
        };
        Self {
            columns: items("columnDefinitions").into_iter().flatten().map(column).collect(),
            rows: items("rows").into_iter().flatten().map(row).collect(),
        }
    }

    /// The same for a response with Nodes.
    pub(in crate::cli) fn parse_nodes(response: &Value) -> Self {
        let mut table = Self::parse(response);
        // The later events of a watch have no columns. A table of names has one.
        if table.columns.len() > 1 {
            let column = |name: &str| TableColumn { name: name.to_owned(), is_wide: false };
            table.columns.extend(MACHINE_COLUMNS.iter().map(|(name, _)| column(name)));
        }
        let objects = response.get("rows").and_then(Value::as_array).into_iter().flatten();
        for (row, object) in table.rows.iter_mut().zip(objects) {
            row.cells.extend(MACHINE_COLUMNS.iter().map(|(_, annotation)| {
                let annotations = object.pointer("/object/metadata/annotations");
                annotations
                    .and_then(|annotations| annotations.get(annotation))
                    .map_or_else(|| "<none>".to_owned(), cell)
            }));
        }
        table
    }

    /// Adds the rows of another table of the same kind.
    pub(in crate::cli) fn extend(&mut self, other: Self) {
        if self.columns.is_empty() {
            self.columns = other.columns;
        }
        self.rows.extend(other.rows);
    }

    /// Whether it has no rows.
    pub(in crate::cli) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }
}

/// A cell in one line.
fn cell(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => match text.find(['\n', '\r', '\u{c}']) {
            Some(at) => format!("{}...", escape_control(&text[..at])),
            None => escape_control(text),
        },
        other => other.to_string(),
    }
}

/// Escapes text so that it cannot control the terminal.
pub(super) fn escape_control(text: &str) -> String {
    text.replace('\u{1b}', "^[")
}

/// Prints successive tables of one kind. Columns never get narrower, so that rows stay aligned.
#[derive(Debug, Clone, Default)]
pub(in crate::cli) struct TablePrinter {
    wide: bool,
    with_namespace: bool,
    prefix: String,
    columns: Vec<TableColumn>,
    widths: Vec<usize>,
}

impl TablePrinter {
    /// `wide` also shows columns of low priority. `prefix` stands before each name: the kind, if several
    /// kinds are shown.
    pub(in crate::cli) fn new(wide: bool, with_namespace: bool, prefix: String) -> Self {
        Self { wide, with_namespace, prefix, ..Self::default() }
    }

    /// The text of a table. Only the first one has headings.
    pub(in crate::cli) fn render(&mut self, table: &ServerTable) -> String {
        let mut lines = Vec::new();
        if self.columns.is_empty() && !table.columns.is_empty() {
            self.columns.clone_from(&table.columns);
            let names = self.columns.iter().map(|column| column.name.clone()).collect();
            lines.push(self.line("NAMESPACE", names));
        }
        for row in &table.rows {
            let mut cells = row.cells.clone();
            if let Some(name) = cells.first_mut() {
                name.insert_str(0, &self.prefix);
            }
            lines.push(self.line(&row.namespace, cells));
        }
        self.align(&lines)
    }

    /// The visible cells of a row.
    fn line(&self, namespace: &str, cells: Vec<String>) -> Vec<String> {
        let is_shown = |index: usize| {
            self.columns.get(index).is_some_and(|column| self.wide || !column.is_wide)
        };
        let namespace = self.with_namespace.then(|| namespace.to_owned());
        let cells = cells.into_iter().enumerate().filter(|(index, _)| is_shown(*index));
        namespace.into_iter().chain(cells.map(|(_, cell)| cell)).collect()
    }

    /// Aligns rows of cells.
    pub(super) fn align(&mut self, lines: &[Vec<String>]) -> String {
        for line in lines {
            for (index, cell) in line.iter().enumerate() {
                let width = (cell.chars().count() + COLUMN_GAP).max(MIN_COLUMN_WIDTH);
                match self.widths.get_mut(index) {
                    Some(widest) => *widest = width.max(*widest),
                    None => self.widths.push(width),
                }
            }
        }
        let mut text = String::new();
        for line in lines {
            for (index, cell) in line.iter().enumerate() {
                text.push_str(cell);
                if index + 1 < line.len() {
                    let width = self.widths.get(index).copied().unwrap_or_default();
                    let fill = width.saturating_sub(cell.chars().count());
                    text.extend(std::iter::repeat_n(' ', fill));
                }
            }
            text.push('\n');
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn table() -> ServerTable {
        let row = |name: &str, age: Value, ip: Value| json!({"cells": [name, age, ip], "object": {"metadata": {"namespace": "n"}}});
        ServerTable::parse(&json!({
            "kind": "Table",
            "columnDefinitions": [
                {"name": "Name"}, {"name": "Age", "priority": 0}, {"name": "IP", "priority": 1},
            ],
            "rows": [
                row("a", json!("5d"), json!(null)),
                row("a-longer-name", json!(7), json!("\u{1b}x\ny")),
            ],
        }))
    }

    #[test]
    fn wide_namespaced_and_prefixed_tables() {
        let text = |printer: TablePrinter| printer.clone().render(&table());
        assert_eq!(
            text(TablePrinter::default()),
            "NAME            AGE\na               5d\na-longer-name   7\n"
        );
        let wide = TablePrinter { wide: true, with_namespace: true, ..TablePrinter::default() };
        assert_eq!(
            text(wide),
            "NAMESPACE   NAME            AGE   IP\n\
             n           a               5d    \n\
             n           a-longer-name   7     ^[x...\n"
        );
        let several = TablePrinter { prefix: "k/".to_owned(), ..TablePrinter::default() };
        assert!(text(several).contains("\nk/a "));
    }

    #[test]
    fn columns_keep_their_width() {
        let mut printer = TablePrinter::default();
        printer.render(&table());
        let mut one = table();
        one.rows.truncate(1);
        one.columns.clear(); // as in the later events of a watch
        assert_eq!(printer.render(&one), "a               5d\n");
    }

    #[test]
    fn nodes_show_how_far_each_machine_is() {
        let row = |annotations: Value| json!({"cells": ["a", "Ready"], "object": {"metadata": {"annotations": annotations}}});
        let mut response = json!({
            "kind": "Table",
            "columnDefinitions": [{"name": "Name"}, {"name": "Status"}],
            "rows": [row(json!({STATE: "Done", CURRENT_CONFIG: "rendered-worker-1"})), row(json!(null))],
        });
        let mut printer = TablePrinter::default();
        assert_eq!(
            printer.render(&ServerTable::parse_nodes(&response)),
            "NAME   STATUS   STATE    CONFIG\n\
             a      Ready    Done     rendered-worker-1\n\
             a      Ready    <none>   <none>\n"
        );
        // A later event of a watch.
        response["columnDefinitions"] = json!(null);
        response["rows"] = json!([row(json!({STATE: "Working"}))]);
        assert_eq!(
            printer.render(&ServerTable::parse_nodes(&response)),
            "a      Ready    Working   <none>\n"
        );
        let names = json!({"kind": "NodeList", "items": [{"metadata": {"name": "a"}}]});
        assert_eq!(ServerTable::parse_nodes(&names), ServerTable::parse(&names));
    }

    #[test]
    fn objects_are_shown_by_name() {
        let object = json!({"kind": "Pool", "metadata": {"name": "a"}});
        assert_eq!(TablePrinter::default().render(&ServerTable::parse(&object)), "NAME\na\n");
        let list = json!({"kind": "PoolList", "items": [object]});
        assert_eq!(ServerTable::parse(&list), ServerTable::parse(&object));
    }
}
