//! Whatever the values, a chart is well-formed XML without `NaN` or `inf` in it.

use forebay_plot::*;
use proptest::prelude::*;

fn value() -> impl Strategy<Value = f64> {
    prop_oneof![
        any::<f64>(),
        -1e4..1e4,
        Just(0.0),
        Just(f64::NAN),
        Just(f64::INFINITY),
        Just(f64::MAX),
        Just(f64::MIN_POSITIVE)
    ]
}

fn kind() -> impl Strategy<Value = Kind> {
    prop_oneof![
        Just(Kind::Linear),
        Just(Kind::Log2),
        Just(Kind::Log10),
        prop::collection::vec(".{0,12}", 0..6).prop_map(Kind::Categories)
    ]
}

fn check(svg: &str) {
    roxmltree::Document::parse(svg).unwrap();
    for word in ["NaN", "inf\"", "inf,", "-inf"] {
        assert!(!svg.contains(word), "{word} in the chart");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn lines(points in prop::collection::vec((value(), value(), value(), value()), 0..8), x in kind(), y in kind(), bars: bool, name in "[a-z<&\"]{0,8}") {
        let axis = |kind| Axis { kind, ..Axis::linear("l") };
        let series = Series { samples: points.iter().map(|p| (p.1, p.0)).collect(), ..Series::with_range(name.clone(), points) };
        let spread = if bars { Spread::Bars } else { Spread::Band };
        check(&Line { title: name, x: axis(x), y: axis(y), series: vec![series.clone(), series], spread, ..Line::default() }.svg());
    }

    #[test]
    fn bars(values in prop::collection::vec(value(), 0..8), stacked: bool, names in prop::collection::vec("\\PC{0,30}", 0..6)) {
        let series = BarSeries { ranges: values.iter().map(|v| (v - 1.0, v + 1.0)).collect(), ..BarSeries::new("x", values) };
        check(&Bars { categories: names, series: vec![series.clone(), series], stacked, labels: true, ..Bars::default() }.svg());
    }

    #[test]
    fn heat(cells in prop::collection::vec(prop::collection::vec(value(), 0..4), 0..4), shades in prop_oneof![Just(Shades::Sequential), Just(Shades::Logarithmic), Just(Shades::Diverging(0.0))]) {
        let names: Vec<String> = ["a", "b", "c"].map(String::from).to_vec();
        check(&HeatMap { rows: names.clone(), columns: names, cells, shades, ..HeatMap::default() }.svg());
    }

    #[test]
    fn timelines(jumps in prop::collection::vec((value(), value()), 0..8), stacked: bool, end in prop::option::of(value())) {
        let holds = jumps.iter().enumerate().map(|(i, j)| Hold { row: i, from: j.0, to: j.1, holder: i, label: "l".into() }).collect();
        check(&Gantt { rows: vec!["a".into(), "b".into()], holders: vec!["h".into()], holds, ..Gantt::default() }.svg());
        let series = vec![StepSeries { name: "s".into(), jumps }; 2];
        check(&Steps { series, stacked, end, ..Steps::default() }.svg());
    }
}
