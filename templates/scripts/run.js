// What runs on a run's page.
import { startBars } from "./charts/bars.js";
import { startCharts } from "./charts/charts.js";
import { startStepChart } from "./charts/step_chart.js";
import { startStepMarks, startTables } from "./page/tables.js";
import { startLinks, startTheme, startTitles } from "./page/theme.js";
import { startTimeline } from "./timeline/timeline.js";

startTheme();
startTitles();
startLinks();
startTables();
startStepMarks();
startBars();
startStepChart();
startTimeline();
startCharts();
