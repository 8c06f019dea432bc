//! Reading baskets and labels from CSV files, plain or gzipped. Every fault names its line and
//! column.

use flate2::read::GzDecoder;
use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io::Read;
use std::path::Path;

/// One line of a basket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BasketLine {
    /// The SKU.
    pub sku: u64,
    /// Units; 0 occurs in real data.
    pub quantity: u32,
}

/// What one household bought at once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Basket {
    /// The basket's number.
    pub id: u64,
    /// The household.
    pub user: u64,
    /// Its lines, as in the file.
    pub lines: Vec<BasketLine>,
}

fn open(path: &Path) -> Result<Box<dyn Read>, String> {
    let file = File::open(path).map_err(|error| format!("{}: {error}", path.display()))?;
    if path.extension().is_some_and(|extension| extension == "gz") {
        Ok(Box::new(GzDecoder::new(file)))
    } else {
        Ok(Box::new(file))
    }
}

/// Reads baskets, in the order of their first lines.
///
/// # Errors
/// One plain sentence with file, line and column.
pub fn read_baskets(path: &Path) -> Result<Vec<Basket>, String> {
    parse_baskets(open(path)?).map_err(|why| format!("{}: {why}", path.display()))
}

/// As [`read_baskets`], from any reader.
///
/// # Errors
/// One plain sentence with line and column.
pub fn parse_baskets(input: impl Read) -> Result<Vec<Basket>, String> {
    let mut reader = csv::Reader::from_reader(input);
    let header = reader.headers().map_err(|error| format!("line 1: {error}"))?.clone();
    let column = |name: &str| {
        let at = header.iter().position(|found| found == name);
        at.ok_or_else(|| format!("line 1: the column {name:?} is missing"))
    };
    let (at, user) = (column("at")?, column("user")?);
    let (basket, sku, quantity) = (column("basket")?, column("sku")?, column("qty")?);
    let mut baskets: Vec<Basket> = Vec::new();
    let mut places = HashMap::new();
    for record in reader.records() {
        let record = record.map_err(|error| {
            let line = error.position().map_or(0, csv::Position::line);
            format!("line {line}: {error}")
        })?;
        let line = record.position().map_or(0, csv::Position::line);
        let field = |column: usize, name: &str| {
            let text = record.get(column).unwrap_or_default();
            let bad = || format!("line {line}, column {name:?}: {text:?} is no whole number");
            text.parse::<u64>().map_err(|_| bad())
        };
        if record.get(at).is_none_or(str::is_empty) {
            return Err(format!("line {line}, column \"at\": the moment is missing"));
        }
        let id = field(basket, "basket")?;
        let user = field(user, "user")?;
        let place = *places.entry(id).or_insert_with(|| {
            baskets.push(Basket { id, user, lines: Vec::new() });
            baskets.len() - 1
        });
        if baskets[place].user != user {
            return Err(format!("line {line}, column \"user\": basket {id} has two users"));
        }
        let units = field(quantity, "qty")?;
        let quantity = u32::try_from(units)
            .map_err(|_| format!("line {line}, column \"qty\": {units} is too much"))?;
        baskets[place].lines.push(BasketLine { sku: field(sku, "sku")?, quantity });
    }
    if baskets.is_empty() {
        return Err("the file has no baskets".into());
    }
    Ok(baskets)
}

/// Reads which department a SKU belongs to (columns sku and department).
///
/// # Errors
/// One plain sentence with file, line and column.
pub fn read_departments(path: &Path) -> Result<BTreeMap<u64, String>, String> {
    let named = |why: String| format!("{}: {why}", path.display());
    let mut reader = csv::Reader::from_reader(open(path)?);
    let header = reader.headers().map_err(|error| named(error.to_string()))?.clone();
    let column = |name: &str| {
        let at = header.iter().position(|found| found == name);
        at.ok_or_else(|| named(format!("line 1: the column {name:?} is missing")))
    };
    let (sku, department) = (column("sku")?, column("department")?);
    let mut departments = BTreeMap::new();
    for record in reader.records() {
        let record = record.map_err(|error| named(error.to_string()))?;
        let line = record.position().map_or(0, csv::Position::line);
        let text = record.get(sku).unwrap_or_default();
        let number = text.parse::<u64>().map_err(|_| {
            named(format!("line {line}, column \"sku\": {text:?} is no whole number"))
        })?;
        departments.insert(number, record.get(department).unwrap_or("?").to_owned());
    }
    Ok(departments)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_name_line_and_column() {
        let table = [
            ("", "column \"at\" is missing"),
            ("at,user,basket,sku\n", "column \"qty\" is missing"),
            ("at,user,basket,sku,qty\n", "no baskets"),
            ("at,user,basket,sku,qty\nt,1,1,x,1\n", "line 2, column \"sku\": \"x\""),
            ("at,user,basket,sku,qty\nt,1,1,1,1\nt,1,1,1,-1\n", "line 3, column \"qty\""),
            ("at,user,basket,sku,qty\nt,1,1,1,5000000000\n", "too much"),
            ("at,user,basket,sku,qty\nt,1,1,1,1\nt,2,1,1,1\n", "basket 1 has two users"),
            ("at,user,basket,sku,qty\n,1,1,1,1\n", "column \"at\""),
            ("at,user,basket,sku,qty\nt,1,1\n", "line 2"),
        ];
        for (text, words) in table {
            let why = parse_baskets(text.as_bytes()).unwrap_err();
            assert!(why.contains(words), "{text:?}: {why}");
        }
    }

    #[test]
    fn lines_of_a_basket_come_together() {
        let text = "at,user,basket,sku,qty,value\nt,1,7,5,2,1\nt,2,8,5,0,1\nt,1,7,6,1,1\n";
        let baskets = parse_baskets(text.as_bytes()).unwrap();
        assert_eq!((baskets.len(), baskets[0].lines.len()), (2, 2));
        assert_eq!(baskets[1].lines, [BasketLine { sku: 5, quantity: 0 }]);
    }

    #[test]
    fn the_fixture_is_what_its_readme_says() {
        let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures");
        let baskets = read_baskets(&fixtures.join("baskets-2017h1.csv.gz")).unwrap();
        let lines: Vec<&BasketLine> = baskets.iter().flat_map(|basket| &basket.lines).collect();
        assert_eq!((baskets.len(), lines.len()), (42_145, 168_346));
        assert_eq!(lines.iter().filter(|line| line.quantity == 0).count(), 714);
        let departments = read_departments(&fixtures.join("skus-2017h1.csv.gz")).unwrap();
        assert!(lines.iter().all(|line| departments.contains_key(&line.sku)));
    }
}
