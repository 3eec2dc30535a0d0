package provider_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// fortyStories are those of a platform engineer who keeps jobs in Terraform, each with the tests that tell it. Names with a
// slash are in another folder of the repository.
var fortyStories = []struct {
	story string
	tests []string
}{
	{"the tutorial, word by word", []string{"docs/TestTutorial"}},
	{"the guides, word by word, with terraform test and a mocked provider", []string{"TestGuidesWorkWordByWord"}},
	{"install the provider of a release", []string{"test/release/TestReleaseInstallsAndFires"}},
	{"40 jobs of a YAML file, with defaults of the app and of the provider", []string{"TestStoryJobsOfAYAMLFile"}},
	{"triggers of variables, each.value, a file and modules", []string{"TestStoryModulesMakeJobsWithTriggers"}},
	{"1,000 jobs of modules in three levels", []string{"TestStoryThousandJobsOfModulesInThreeLevels"}},
	{"a module passes nothing on", []string{"TestStoryModuleThatPassesNothingOn", "TestEmptyTextIsRefusedUnlessItIsAValue"}},
	{"count from one to none and back", []string{"TestStoryJobComesAndGoesByCount"}},
	{"another order of triggers, and one more", []string{"TestTriggersComeFromAMap", "TestOrderOfTriggersIsNoChange"}},
	{"another spelling is no change", []string{"TestEquivalentStringsAreNoChange", "TestRespeltDurationsOfAppAreNoChange"}},
	{"every attribute set, changed and removed", []string{"TestAppliesKeepThePromisesOfPlans"}},
	{"values that are known only at apply", []string{"TestUnknownJobValuesAreCheckedAtApply", "TestEndpointMayBeUnknownAtPlan"}},
	{"two aliases of the provider", []string{"TestStoryAliasesManageTwoInstallations"}},
	{"two states of one app, and a job in both", []string{"TestStoryTwoStatesShareAnApp", "TestExistingJobIsNotOverwritten"}},
	{"the first plan with a wrong address, token or no node", []string{"TestFirstPlanFailsAtWrongEndpointOrToken",
		"TestFirstPlanWithoutNodeSaysThatNothingWasChecked"}},
	{"nodes that demand a client certificate", []string{"TestProviderShowsClientCertificate"}},
	{"the node dies in the middle of an apply", []string{"TestStoryApplyOutlivesItsNode"}},
	{"a saved plan is older than a change", []string{"TestStoryConflictsSayWhoChangedWhatAndWhen"}},
	{"a change outside of Terraform", []string{"TestStoryDriftIsShownAndCorrected", "TestOutsideChangesAreUndone"}},
	{"a job is deleted outside of Terraform", []string{"TestJobDeletedOutsideIsCreatedAgain"}},
	{"an operator pauses a job", []string{"TestOutsidePauseIsNoChange", "TestPausedJobsAndStoppedAppsAreReportedInEveryPlan"}},
	{"a job gets another key and name, and keeps its history", []string{"TestMovedBlocksAndRenamesAreIndependent",
		"TestRenamedJobKeepsItsHistoryAndFires"}},
	{"a job is renamed by the command line", []string{"TestJobThatWasRenamedElsewhereIsRenamedBack"}},
	{"a name that another job has or had", []string{"TestTakenNameIsRefusedInWords"}},
	{"a job is replaced", []string{"TestStoryReplacedJobIsDestroyedFirst"}},
	{"a deletion keeps history", []string{"TestStoryDeletionKeepsHistoryAndOtherDeclarations"}},
	{"import of every kind, with generated configuration", []string{"TestGeneratedConfigurationOfAnImportIsValidAndComplete",
		"TestGeneratedConfigurationOfAlerts", "TestGeneratedConfigurationOfAnEndpointGroup"}},
	{"an export of the command line is imported", []string{"TestStoryExportIsImportedWithoutAChange"}},
	{"the state of an older provider", []string{"TestStatesOfAllReleasesAreRead"}},
	{"mistakes in every place", []string{"TestStoryWrongInputsAreReportedAtTheirLines", "TestStoryMisspeltNamesAreRefusedByValidate"}},
	{"bounds of the app, with empty lists", []string{"TestEmptyListsOfBoundsStayEmpty", "TestStoryLambdaOutsideOfTheBoundsIsReportedAtPlan"}},
	{"bounds and jobs change in one apply", []string{"TestJobsThatAChangeOfBoundsBreaksAreShown"}},
	{"targets that no node can reach", []string{"TestPlanWarnsOfWhatNoNodeCanReach"}},
	{"secrets are rotated, and neither shown nor sent elsewhere", []string{"TestStorySecretsAreRotatedByVersionAndShownNowhere",
		"TestStoredSecretsAreNotSentToAnotherHost"}},
	{"a changed default of the app, with many jobs", []string{"TestChangeOfTheDefaultRetryIsExplained",
		"TestStoryWarningsOfManyJobsAreCounted"}},
	{"fires around daylight saving and on business days", []string{"TestStoryDaylightSavingWarningIsShownOnceAndResolved",
		"TestStoryBusinessDaysOfAYearMatchAList"}},
	{"a job of one instant", []string{"TestStoryInstantOfAOneShotJobIsCheckedAtPlan"}},
	{"jobs that follow one another, from one for_each", []string{"TestFollowStory", "TestJobsOfOneForEachFollowOneAnother"}},
	{"calendars, groups and followers go with their last use", []string{"TestCalendarGoesWithItsLastUseInOneApply",
		"TestEndpointGroupGoesWithItsLastUseInOneApply", "TestFollowerGoesWithItsNameInOneApply"}},
	{"alerts, endpoint groups and executors", []string{"TestAlertStory", "TestEndpointGroupStory", "TestExecutorGroupStory"}},
}

// Each of the stories has tests that exist, and no test counts for two.
func TestEachStoryHasATest(t *testing.T) {
	t.Parallel()
	if len(fortyStories) != 40 {
		t.Errorf("there are %d stories, want 40", len(fortyStories))
	}
	declared := map[string]bool{}
	for _, folder := range []string{"provider", "docs", "test/release"} {
		files, err := filepath.Glob(filepath.Join("..", folder, "*_test.go"))
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			for _, name := range regexp.MustCompile(`(?m)^func (Test\w+)\(t \*testing\.T\)`).FindAllSubmatch(text, -1) {
				declared[strings.TrimPrefix(folder+"/"+string(name[1]), "provider/")] = true
			}
		}
	}
	told := map[string]string{}
	for _, one := range fortyStories {
		if len(one.tests) == 0 {
			t.Errorf("story %q has no test", one.story)
		}
		for _, test := range one.tests {
			if !declared[test] {
				t.Errorf("story %q: there is no test %s", one.story, test)
			}
			if other := told[test]; other != "" {
				t.Errorf("stories %q and %q have the same test %s", one.story, other, test)
			}
			told[test] = one.story
		}
	}
	for test := range declared {
		if strings.HasPrefix(test, "TestStory") && told[test] == "" {
			t.Errorf("test %s tells none of the stories", test)
		}
	}
}
